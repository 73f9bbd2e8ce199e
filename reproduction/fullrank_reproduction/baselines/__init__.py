"""Baselines of coded training whose updates are not units of a code."""
