"""Trained policies for use without Fullrank: one file for each agent, checked against the run."""
