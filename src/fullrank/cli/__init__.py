"""The command line: one file per verb group."""

from fullrank.cli.main import main

__all__ = ["main"]
