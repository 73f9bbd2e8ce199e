"""Hand-written forward and backward passes of two-layer perceptrons, many units at once."""
