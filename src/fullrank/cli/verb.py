"""Declaration of a verb of the command line, by the library or an installed package."""

from typing import NamedTuple


class Verb(NamedTuple):
    """A verb; its module is imported only when the verb is run."""

    panel: str
    """Heading of its group in ``fullrank --help``."""
    place: str
    """``module:attribute`` of a function or a Typer application."""
    help: str
    """Help text, one line."""
