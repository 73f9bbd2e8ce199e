"""Fault injection and deterministic simulation testing of a run."""
