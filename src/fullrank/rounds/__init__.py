"""Rounds: which coded vectors have arrived, and whether the iteration may be committed."""
