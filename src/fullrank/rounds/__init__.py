"""Rounds: the coded vectors received, and the decision whether the iteration may be committed."""
