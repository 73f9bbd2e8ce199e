"""Particle worlds; every module of this package is a scenario."""
