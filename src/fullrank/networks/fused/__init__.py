"""Hand-written forward and backward passes of two-layer perceptrons, batched over units."""
