"""Runs: the files that a run leaves on disk, and what is read from them."""
