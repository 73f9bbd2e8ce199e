"""Delay models: who straggles in an iteration, and for how long.

A decision is a pure function of (seed, iteration, learner), so that every process agrees without
talking. A straggler delays its return after computing; it never computes less.
"""
