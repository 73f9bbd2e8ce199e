"""Versions of neighbours: two processes of a run are of one minor release of Fullrank."""

from fullrank import __version__
from fullrank.common.errors import VersionMismatch
from fullrank.common.text import plain
from fullrank.runs.identity import series


def check_version(version: str, *, peer: str, own: str) -> None:
    """Refuse a neighbour of another minor release; patches of one release work together.

    Args:
        version: The version that it names; empty if it is too old to name one.
        peer: Its role, for the message.
        own: The role of this process.

    Raises:
        VersionMismatch: The releases differ; the message names both versions.
    """
    if series(version) != series(__version__):
        raise VersionMismatch(
            f"version {plain(version[:32]) or 'unknown'} of the {peer} differs from the {own}'s "
            f"{__version__}; install versions of one minor release on both"
        )
