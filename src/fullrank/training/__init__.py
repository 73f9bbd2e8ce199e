"""Training: collection of transitions, sampling, and the optimiser's step."""
