"""Dialogue with the collectors: parameters and blocks out, played episodes in."""
