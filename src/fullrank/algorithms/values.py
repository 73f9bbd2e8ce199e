"""Value-based teams: shared networks of action values, learned from micro-batches of episodes.

With T the number of steps of all B episodes of the sample, the loss is

    L = 1 / T sum of (G_t - Q_t)^2 over episodes and steps t

    G_t = r_t + discount (1 - terminated_t) [(1 - trace) Q'_(t+1) + trace G_(t+1)]

where Q_t is the value of the chosen actions, and Q' the target network's value of the best
available actions, best by the online network if ``double`` is set [vanHasselt16]. G continues
with Q' where a time limit cut an episode off, unless ``time_limit_bootstrap`` is false. ``trace`` =
0 gives one-step targets. The statistics are those that PyMARL logs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms.action_values import ActionValues
from fullrank.algorithms.base import EnvironmentSpec
from fullrank.algorithms.devices import device_of
from fullrank.algorithms.fused_values import FusedValueGradients, MakeMixing
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.problem import DataMode, Problem
from fullrank.algorithms.roles import Algorithm
from fullrank.algorithms.sum_optimiser import SumOptimiser
from fullrank.algorithms.trajectories import (
    ENTRIES,
    SCALE,
    Trajectories,
    ValueActor,
    best_actions,
    shares_of,
)
from fullrank.algorithms.updates import Entries, Statistics
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.networks.adam import Adam, RMSprop
from fullrank.networks.value_networks import RecurrentAgent
from fullrank.replay.episodes import EpisodeLayout

LEAST_DEVIATION = 1e-5
"""Added to the deviation of rewards, which may all be equal."""
TD_ERROR = "td_error"
"""Name of the derived column of a step's temporal difference."""
_OF_RMSPROP = ("smoothing", "epsilon")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLearner(ActionValues):
    """Hyperparameters and roles of value-based teams; the defaults are those of PyMARL."""

    buffer_size: int = 5000
    """Number of newest episodes from which B are drawn."""
    optimiser: Literal["rmsprop", "adam"] = "rmsprop"
    """Update rule of the controller."""
    smoothing: float = 0.99
    """Weight of the old mean square in RMSprop, alpha."""
    epsilon: float = 1e-5
    """Term added to the root of the mean square in RMSprop."""
    target_every: int = 25
    """Number of updates between two copies of the parameters to the target networks; 25 updates
    with 8 new episodes each are PyMARL's 200 episodes."""
    double: bool = True
    """Choose the next actions by the online network (double Q-learning)."""
    standardise_rewards: bool = False
    """Give the rewards of a minibatch mean 0 and deviation 1, as EPyMARL does."""
    td_errors: bool = False
    """Give each step its temporal difference where it is played, by which
    ``sampling.method = "prioritised"`` draws then in place of rewards, as actors of [Horgan18]."""

    entries: ClassVar[Entries] = ENTRIES
    """Statistics that PyMARL logs."""

    def __post_init__(self) -> None:
        ActionValues.__post_init__(self)
        if min(self.buffer_size, self.target_every) < 1:
            raise ConfigError("algorithm.buffer_size and target_every must be at least 1")
        unread = (each for each in fields(self) if each.name in _OF_RMSPROP)
        if self.optimiser == "adam" and any(getattr(self, f.name) != f.default for f in unread):
            raise ConfigError(
                "algorithm.smoothing and epsilon are RMSprop's: leave them, or use "
                "algorithm.optimiser = 'rmsprop'"
            )
        if self.td_errors and self.standardise_rewards:
            raise ConfigError(
                "algorithm.td_errors are those of rewards as they are paid; leave it or "
                "algorithm.standardise_rewards"
            )

    def minibatch(self, drawn: FloatArray, layout: EpisodeLayout) -> FloatArray:
        """Return the rows of a minibatch, with standardised rewards if these are asked for."""
        if not self.standardise_rewards:
            return drawn
        rows, played = drawn.copy(), drawn[:, layout.length] == 0.0
        reward = rows[played, layout.reward].astype(np.float64)
        rows[played, layout.reward] = (reward - reward.mean()) / (reward.std() + LEAST_DEVIATION)
        return rows

    def losses(
        self, nets: Networks, batch: Trajectories
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        """Compute a unit's share of the loss and of the statistics."""
        values = self.values(nets.agent[0], batch)
        available, state = batch.available, batch.state
        with torch.no_grad():
            target_values = self.values(nets.target_agent[0], batch)[1:]
            judge = values[1:] if self.double else target_values
            best = best_actions(judge, available[1:])
            next_value = self.joint(
                nets, target_values, best, available[1:], state[1:], target=True
            )
            expected = self.returns(next_value, batch)
        value = self.joint(
            nets, values[:-1], batch.action, available[:-1], state[:-1], target=False
        )
        error = (expected - value) * batch.valid[..., None]
        parts = (part.detach().cpu().numpy() for part in (value, expected, batch.valid))
        shares = shares_of(*parts, steps=int(batch.steps), agents=batch.action.shape[2])
        loss = error.square().sum() / (batch.steps * value.shape[2])
        return dict.fromkeys(nets.parameters.groups[0].networks, loss), shares

    def prepare(self, rows: FloatArray, nets: Networks, layout: EpisodeLayout) -> None:
        """Fill the temporal differences of episodes, the largest in magnitude of a step's values.

        Those that play have no target networks: ``nets`` are also in place of these.
        """
        column = layout.columns[TD_ERROR]
        for steps, errors in self.played(rows, nets, layout, less_taken=True):
            rows[steps, column] = errors.abs().amax(1, keepdim=True).cpu().numpy()

    def layout(self, environment: EnvironmentSpec) -> EpisodeLayout:
        """Return the layout of a step, with its temporal difference if ``td_errors`` is set."""
        layout = ActionValues.layout(self, environment)
        return replace(layout, derived=((TD_ERROR, 1),)) if self.td_errors else layout

    def problem(self, environment: EnvironmentSpec) -> Problem:
        """Describe units, sections and sizes; those that play read all networks if they prepare.

        Units read the whole minibatch where its rewards are standardised.
        """
        problem = ActionValues.problem(self, environment)
        if self.standardise_rewards:
            problem = replace(problem, items=None)
        return replace(problem, prepared_by=self.playing(problem)) if self.td_errors else problem

    def data_mode(self) -> DataMode:
        """Return the origin of the minibatch: B of the newest episodes in replay."""
        return DataMode(batch_size=self.batch_size, newest_episodes=self.buffer_size)

    def make(self, environment: EnvironmentSpec, *, seed: int, device: str) -> Algorithm:
        """Build all four roles."""
        where, layout = device_of(device), self.layout(environment)
        nets = self.initial(environment, seed=seed, device=where)
        return Algorithm(
            problem=self.problem(environment),
            parameters=nets.parameters,
            gradients=self.fused(environment, nets, where)
            or self.readable(environment, nets, where),
            optimiser=SumOptimiser(
                nets.parameters,
                rule_of(self),
                entries=self.entries,
                scale=SCALE,
                clip_norm=self.clip_norm,
                target_every=self.target_every,
            ),
            actor=ValueActor(self, nets, layout, seed=seed),
            prepare=partial(self.prepare, nets=nets, layout=layout) if self.td_errors else None,
        )

    def fused(
        self, environment: EnvironmentSpec, nets: Networks, device: torch.device
    ) -> FusedValueGradients | None:
        """Build the learner's role from hand-written passes; None where there are none."""
        mixing, network = self.mixing_passes(nets, device), nets.agent[0]
        if mixing is None or type(network) is not RecurrentAgent or network.normalised:
            return None
        return FusedValueGradients(self, mixing, nets, self.layout(environment), device=device)

    def mixing_passes(self, nets: Networks, device: torch.device) -> MakeMixing | None:
        """Return the maker of hand-written passes of ``mix``; None, the default, for autograd."""
        return None


def rule_of(learner: ValueLearner) -> Adam | RMSprop:
    """Build the update rule of a learner's parameters."""
    rate = learner.learning_rate
    if learner.optimiser == "adam":
        return Adam(learning_rate=rate, target_rate=0.0)
    return RMSprop(learning_rate=rate, decay=learner.smoothing, epsilon=learner.epsilon)
