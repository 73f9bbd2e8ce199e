"""Episodes of a minibatch, padded to the longest, as tensors for the losses."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fullrank.common.types import FloatArray, IntArray
from fullrank.replay.episodes import EpisodeLayout


class Trajectories:
    """K episodes of up to L steps; padding is zero and not valid.

    Agents with smaller observations or fewer actions than others are padded with zeros and actions
    that are not available.

    Args:
        episodes: Packed steps of each episode, shapes (steps + 1, row_size) float32.
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
            rows[: len(episode), number] = episode
            valid[: len(episode) - 1, number] = 1.0

        def tensor(array: FloatArray | IntArray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        self.observation = tensor(by_agent(rows[..., layout.observation], layout.observation_sizes))
        self.state = tensor(rows[..., layout.state])
        self.available = tensor(by_agent(rows[..., layout.available], layout.action_sizes)) > 0
        self.action = tensor(rows[:-1, :, layout.action].astype(np.int64))
        self.reward = tensor(rows[:-1, :, layout.reward])
        self.continues = 1.0 - tensor(rows[:-1, :, layout.terminated])
        self.valid = tensor(valid)

    @property
    def last_action(self) -> Tensor:
        """Action before each step as one-hot, zero at the start, shape (L + 1, K, n, A)."""
        choices = self.available.shape[-1]
        taken = functional.one_hot(self.action.clamp_min(0), choices)
        taken = (taken * (self.action >= 0)[..., None]).to(self.observation.dtype)
        return functional.pad(taken, (0, 0, 0, 0, 0, 0, 1, 0))


def by_agent(joint: FloatArray, sizes: tuple[int, ...]) -> FloatArray:
    """Split joint parts by agent, padded to the widest: shape (..., n, max of sizes)."""
    if len(set(sizes)) == 1:
        return joint.reshape(*joint.shape[:-1], len(sizes), sizes[0])
    split = np.zeros((*joint.shape[:-1], len(sizes), max(sizes)), joint.dtype)
    for agent, (size, start) in enumerate(zip(sizes, np.cumsum((0, *sizes)), strict=False)):
        split[..., agent, :size] = joint[..., start : start + size]
    return split
