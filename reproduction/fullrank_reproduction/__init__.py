"""Reproductions of published experiments: cells that are computed once, claims, a page."""
