"""Networks of many units computed together: flat parameters, gradients by hand, one optimiser."""
