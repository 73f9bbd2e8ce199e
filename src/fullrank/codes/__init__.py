"""Codes: one file each."""
