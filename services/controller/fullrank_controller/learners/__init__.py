"""Dialogue with the learners: assignments out, contributions in."""
