"""SMAC-lite: battles with the interface of SMAC; ``environment`` registers it."""
