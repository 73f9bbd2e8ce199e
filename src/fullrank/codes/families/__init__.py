"""Code families: one file each, found by the registry."""
