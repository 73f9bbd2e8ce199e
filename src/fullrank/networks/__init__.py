"""Networks of many units computed together: flat parameters, hand-written gradients, Adam."""
