"""The collector service."""
