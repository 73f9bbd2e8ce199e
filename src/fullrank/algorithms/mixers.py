"""Mixing networks over the steps of episodes."""

from torch import Tensor, nn

from fullrank.common.errors import ConfigError
from fullrank.networks.value_networks import MonotonicMixer
from fullrank.replay.episodes import EpisodeLayout


def state_size(layout: EpisodeLayout) -> int:
    """Return the number of entries of the global state, or of the joint observation.

    Raises:
        ConfigError: There are only images.
    """
    if layout.image_sizes:
        raise ConfigError(
            "this algorithm mixes by a global state, and these agents see images; use vdn, iql, or "
            "pqn with algorithm.mixer = 'sum' or 'none', or flatten them by algorithm.model = 'mlp'"
        )
    return layout.state_entries


def monotonic(
    layout: EpisodeLayout, *, mixing: int, hypernet: int, hypernet_layers: int = 2
) -> MonotonicMixer:
    """Build the mixing network of [Rashid18] for a team."""
    return MonotonicMixer(
        layout.agents,
        state_size(layout),
        embed=mixing,
        hypernet=hypernet,
        hypernet_layers=hypernet_layers,
    )


def mixed(mixer: nn.Module, values: Tensor, state: Tensor) -> Tensor:
    """Return Q_tot, shape (steps, K, 1), of values (steps, K, n) and states (steps, K, S)."""
    joint: Tensor = mixer(values.flatten(0, 1), state.flatten(0, 1))
    return joint.view(*values.shape[:2], 1)
