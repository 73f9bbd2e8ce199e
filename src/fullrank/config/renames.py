"""Renamed settings and tables."""

from fullrank.common.errors import ConfigError

RENAMED = {
    "algorithm.noise_limit": "algorithm.max_variance",
    "replay.sampler": "sampling.method",
    "replay.priority_gain": "sampling.priority_gain",
    "straggler": "sidecar",
}
"""Old key or table to its new name."""


def check_name(key: str, origin: str) -> None:
    """Refuse an old name.

    Raises:
        ConfigError: The key was renamed; the message has the new name.
    """
    for old, new in RENAMED.items():
        if key == old or key.startswith(f"{old}."):
            renamed = new + key.removeprefix(old)
            raise ConfigError(f"{key!r} in {origin} is called {renamed!r} now; rename it there")
