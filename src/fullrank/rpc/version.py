"""Versions of neighbours: two processes of a run must run the same Fullrank."""

from fullrank import __version__
from fullrank.common.errors import VersionMismatch


def check_version(version: str, *, peer: str, own: str) -> None:
    """Refuse a neighbour of another version.

    Args:
        version: The version that it names; empty if it is too old to name one.
        peer: Its role, for the message.
        own: The role of this process.

    Raises:
        VersionMismatch: The versions differ; the message names both.
    """
    if version != __version__:
        raise VersionMismatch(
            f"version {version[:32] or 'unknown'} of the {peer} differs from the {own}'s "
            f"{__version__}; install the same version on both"
        )
