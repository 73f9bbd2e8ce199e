"""Episodes of a minibatch, padded to the longest, as tensors for the losses."""

import numpy as np
import torch
from torch import Tensor

from fullrank.common.types import FloatArray, IntArray
from fullrank.replay.episodes import EpisodeLayout


class Trajectories:
    """K episodes of up to L steps; padding is zero and not valid.

    Agents with smaller observations or fewer actions than others are padded with zeros and actions
    that are not available.

    Args:
        episodes: Packed steps of each episode, shapes (steps + 1, row_size or more) float32; no
            row: an episode of padding.
        layout: Layout of a row.
        device: Device of the tensors.

    Attributes:
        observation: Observation of each agent, shape (L + 1, K, n, O).
        state: Global state, shape (L + 1, K, S).
        available: Mask of the actions that may be chosen, shape (L + 1, K, n, A).
        action: Index of each agent's action, shape (L, K, n); -1 where it could not act.
        reward: Reward of the team, shape (L, K).
        continues: 0 where the step reached a terminal state, else 1, shape (L, K).
        valid: 1 for steps of an episode, 0 for padding, shape (L, K).
    """

    def __init__(
        self, episodes: list[FloatArray], layout: EpisodeLayout, *, device: torch.device
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
