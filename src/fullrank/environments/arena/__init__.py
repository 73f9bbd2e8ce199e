"""Agents and food in a walled square; every module of this package is a task."""
