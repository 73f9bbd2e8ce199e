"""Replay: tables of packed transitions, sampled by position."""
