"""What losses of values read: the episodes of a unit, padded to the longest, and statistics."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms.updates import Entries
from fullrank.common.types import FloatArray, IntArray
from fullrank.replay.episodes import EpisodeLayout

SCALE = 2.0**-6
"""Factor of updates: entries of a unit's gradient up to 32 keep within the bound of encoding."""

ENTRIES = Entries(("loss", "td_error_abs", "q_taken_mean", "target_mean"), marking="td_error_abs")
"""The statistics that PyMARL's ``QLearner`` logs, under its names: the loss; the mean magnitude of
the temporal differences; the means of Q_t and of G_t, divided by the number of agents."""


class Trajectories:
    """K episodes of up to L steps; padding is zero and not valid.

    Agents with smaller observations or fewer actions than others are padded with zeros and actions
    that are not available.

    Args:
        episodes: Packed steps of each episode, shapes (steps + 1, row_size or more) float32; no
            row: an episode of padding.
        layout: Layout of a row.
        device: Device of the tensors.
        steps: T, number of steps of all episodes of the sample; by default those of these.

    Attributes:
        observation: Observation of each agent, shape (L + 1, K, n, O).
        state: Global state, shape (L + 1, K, S).
        available: Mask of the actions that may be chosen, shape (L + 1, K, n, A).
        action: Index of each agent's action, shape (L, K, n); -1 where it could not act.
        reward: Reward of the team, shape (L, K).
        continues: 0 where the step reached a terminal state, else 1, shape (L, K).
        valid: 1 for steps of an episode, 0 for padding, shape (L, K).
        steps: T.
    """

    def __init__(
        self,
        episodes: list[FloatArray],
        layout: EpisodeLayout,
        *,
        device: torch.device,
        steps: int | None = None,
    ) -> None:
        longest = max(map(len, episodes))
        rows = np.zeros((longest, len(episodes), layout.row_size), np.float32)
        valid = np.zeros((longest - 1, len(episodes)), np.float32)
        for number, episode in enumerate(episodes):
            rows[: len(episode), number] = episode[:, : layout.row_size]
            valid[: max(len(episode) - 1, 0), number] = 1.0

        def tensor(array: FloatArray | IntArray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        joint = by_agent(rows[..., layout.observation], layout.observation_sizes)
        self.observation = torch.from_numpy(joint).to(device)
        self.state = tensor(rows[..., layout.state])
        self.available = tensor(by_agent(rows[..., layout.available], layout.action_sizes)) > 0
        self.action = tensor(rows[:-1, :, layout.action].astype(np.int64))
        self.reward = tensor(rows[:-1, :, layout.reward])
        self.continues = 1.0 - tensor(rows[:-1, :, layout.terminated])
        self.valid = tensor(valid)
        self.steps = int(valid.sum()) if steps is None else steps

    @property
    def last_action(self) -> Tensor:
        """Action before each step as one-hot, zero at the start, shape (L + 1, K, n, A)."""
        taken = self.observation.new_zeros(self.available.shape)
        acted = (self.action >= 0)[..., None].to(taken.dtype)
        taken[1:].scatter_(3, self.action.clamp_min(0)[..., None], acted)
        return taken


def by_agent(joint: FloatArray, sizes: tuple[int, ...]) -> FloatArray:
    """Split joint parts by agent, padded to the widest: shape (..., n, max of sizes)."""
    if len(set(sizes)) == 1:
        return joint.reshape(*joint.shape[:-1], len(sizes), sizes[0])
    split = np.zeros((*joint.shape[:-1], len(sizes), max(sizes)), joint.dtype)
    for agent, (size, start) in enumerate(zip(sizes, np.cumsum((0, *sizes)), strict=False)):
        split[..., agent, :size] = joint[..., start : start + size]
    return split


def chosen_values(values: Tensor, action: Tensor) -> Tensor:
    """Return the values of the chosen actions, 0 where an agent could not act, (..., n)."""
    chosen = values.gather(-1, action.clamp_min(0)[..., None])[..., 0]
    return chosen * (action >= 0)


def best_values(values: Tensor, judge: Tensor, available: Tensor) -> Tensor:
    """Return the values of the available actions that ``judge`` ranks first, 0 without any."""
    best = judge.masked_fill(~available, -torch.inf).argmax(-1, keepdim=True)
    return values.gather(-1, best)[..., 0] * available.any(-1)


def shares_of(
    value: FloatArray, expected: FloatArray, valid: FloatArray, *, steps: int, agents: int
) -> Mapping[str, float]:
    """Return a unit's share of the statistics.

    Sums run over valid steps alone, so that padding changes no bit.

    Args:
        value: Q_t, shape (L, K, values).
        expected: G_t, of the same shape.
        valid: 1 for steps of an episode, 0 for padding, shape (L, K).
        steps: Number of steps of all episodes of the sample.
        agents: Number of agents.
    """
    chosen = valid > 0
    own, aim = (part[chosen].astype(np.float64) for part in (value, expected))
    with np.errstate(all="ignore"):  # values that are not finite are refused with the gradient
        error, count = aim - own, steps * own.shape[1]
        own_sum, aim_sum = own.sum() / agents, aim.sum() / agents
        sums = np.array([np.square(error).sum(), np.abs(error).sum(), own_sum, aim_sum]) / count
    return dict(zip(ENTRIES.names, sums.tolist(), strict=True))
