"""SMAC-lite: battles with the interface of SMAC; ``environment`` registers it."""

from fullrank.environments.smac_lite import environment as _environment  # noqa: F401
