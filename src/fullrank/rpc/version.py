"""Versions of neighbours: two processes of a run are of one minor release of Fullrank."""

import re

from fullrank import __version__
from fullrank.common.errors import VersionMismatch
from fullrank.common.text import plain


def check_version(version: str, *, peer: str, own: str) -> None:
    """Refuse a neighbour of another minor release; patches of one release work together.

    Args:
        version: The version that it names; empty if it is too old to name one.
        peer: Its role, for the message.
        own: The role of this process.

    Raises:
        VersionMismatch: The releases differ; the message names both versions.
    """
    if _series(version) != _series(__version__):
        raise VersionMismatch(
            f"version {plain(version[:32]) or 'unknown'} of the {peer} differs from the {own}'s "
            f"{__version__}; install versions of one minor release on both"
        )


def _series(version: str) -> str:
    """Major and minor number of a version; a value unequal to all of them for another text."""
    numbers = re.fullmatch(r"(\d+\.\d+)\.\d+([-+.].*)?", version, re.ASCII)
    return numbers[1] if numbers else f"no version: {version}"
