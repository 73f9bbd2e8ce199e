"""One iteration: collection, the round, its audit."""
