"""A verb of the command line, as the library and installed packages declare it."""

from typing import NamedTuple


class Verb(NamedTuple):
    """One verb, imported only when it is run."""

    panel: str
    """Heading of its group in ``fullrank --help``."""
    place: str
    """``module:attribute`` of a function or a Typer application."""
    help: str
    """One line."""
