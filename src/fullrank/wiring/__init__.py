"""Construction of the objects that every driver needs, from the configuration tree."""
