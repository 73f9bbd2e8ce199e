"""A small on-policy algorithm: PPO with one network of all agents, from whole episodes.

PPO of Schulman and others (2017): generalised advantages, a clipped objective, epochs of
minibatches. Its units are micro-batches, whose sum an iteration recovers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from fullrank.algorithms import Algorithm, EnvironmentSpec, Problem, register
from fullrank.algorithms.action_values import episode_layout
from fullrank.algorithms.autograd import AutogradGradients, ModuleActor
from fullrank.algorithms.devices import device_of
from fullrank.algorithms.groups import Networks, initial_parameters, problem_of
from fullrank.algorithms.problem import DataMode
from fullrank.algorithms.sum_optimiser import SumOptimiser
from fullrank.algorithms.trajectories import SCALE, by_agent
from fullrank.algorithms.updates import Entries, Statistics
from fullrank.codes.targets import LIMIT
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.networks.adam import Adam
from fullrank.networks.fused import kernels
from fullrank.networks.heads import make_head
from fullrank.networks.modules import perceptron
from fullrank.replay.episodes import EpisodeLayout, episodes_in

ENTRIES = Entries(("value_loss", "policy_loss", "entropy"), marking="value_loss")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Steps:
    """Steps of a unit's episodes, and of all episodes how many there are."""

    rows: FloatArray
    count: int
    advantages: FloatArray
    """Normalised over the whole minibatch, shape (steps, n)."""


@register("small_ppo")
@dataclass(frozen=True, slots=True, kw_only=True)
class SmallPPO:
    """Hyperparameters and roles."""

    batch_size: int = 4
    epochs: int = 2
    micro_batches: int = 2
    hidden: int = 16
    learning_rate: float = 1e-2
    discount: float = 0.99
    trace: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01

    def data_mode(self) -> DataMode:
        return DataMode(batch_size=self.batch_size, epochs=self.epochs)

    def networks(self, environment: EnvironmentSpec) -> Mapping[str, nn.Module]:
        layout = self.layout(environment)
        seen = max(layout.observation_sizes)
        return {
            "policy": perceptron(seen, self.hidden, max(layout.action_sizes)),
            "value": perceptron(seen, self.hidden, 1),
        }

    def layout(self, environment: EnvironmentSpec) -> EpisodeLayout:
        agents = len(environment.agents)
        derived = [(name, agents) for name in ("log_prob", "advantage", "return")]
        return replace(episode_layout(environment), derived=tuple(derived))

    @property
    def parts(self) -> list[range]:
        every, width = range(self.batch_size), -(-self.batch_size // self.micro_batches)
        return [every[part * width :][:width] for part in range(self.micro_batches)]

    def problem(self, environment: EnvironmentSpec) -> Problem:
        layout = self.layout(environment)
        problem = problem_of(
            (tuple(range(len(environment.agents))),),
            lambda agent: self.networks(environment),
            micro_batches=self.parts,
            entries=ENTRIES.size,
            row_size=layout.row_size,
            data=self.data_mode(),
            episodes=layout,
        )
        values = tuple(section.id for section in problem.sections if section.role == "value")
        # Advantages are normalised over the minibatch, so that a unit reads all of it.
        return replace(problem, prepared_by=values, items=None)

    def make(self, environment: EnvironmentSpec, *, seed: int, device: str) -> Algorithm:
        where, groups = device_of(device), (tuple(range(len(environment.agents))),)
        problem, layout = self.problem(environment), self.layout(environment)
        parameters = initial_parameters(
            lambda agent: self.networks(environment), groups, seed=seed, device=where
        )
        nets = Networks(lambda agent: self.networks(environment), groups, parameters)
        return Algorithm(
            problem=problem,
            parameters=parameters,
            gradients=AutogradGradients(
                lambda agents, nets, batch, draws: self.losses(nets, batch, layout),
                nets,
                problem,
                batch_of=lambda rows: self.steps_of(rows, layout),
                seal=lambda gradient, statistics, batch, agents: ENTRIES.after(
                    np.clip(gradient * np.float32(SCALE), -LIMIT, LIMIT), statistics
                ),
                agents=environment.agents,
                seed=seed,
                device=where,
            ),
            optimiser=SumOptimiser(
                parameters,
                Adam(learning_rate=self.learning_rate, target_rate=0.0),
                entries=ENTRIES,
                scale=SCALE,
                clip_norm=0.5,
                target_every=1,
            ),
            actor=ModuleActor(
                environment.agents,
                nets,
                heads=[make_head(a.action, noise=0.0, device=where) for a in environment.agents],
                seed=seed,
            ),
            prepare=partial(self.prepare_all, nets=nets, layout=layout),
        )

    def prepare_all(self, rows: FloatArray, *, nets: Networks, layout: EpisodeLayout) -> None:
        for place in episodes_in(rows, layout.length):
            self.prepare(rows[place], nets, layout)

    def steps_of(
        self, rows: FloatArray, layout: EpisodeLayout
    ) -> Callable[[UnitIndex, tuple[int, ...]], _Steps]:
        places = episodes_in(rows, layout.length)
        steps = [rows[place][:-1] for place in places]
        whole = np.concatenate(steps)[:, layout.columns["advantage"]].astype(np.float64)
        mean, deviation = whole.mean(), whole.std() + 1e-8

        def batch_of(unit: UnitIndex, key: tuple[int, ...]) -> _Steps:
            own = np.concatenate([steps[item] for item in self.parts[unit]])
            advantages = (own[:, layout.columns["advantage"]] - mean) / deviation
            return _Steps(rows=own, count=whole.size, advantages=advantages.astype(np.float32))

        return batch_of

    def losses(
        self, nets: Networks, batch: _Steps, layout: EpisodeLayout
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        log_probs, entropy, value = self.judged(batch.rows, nets, layout)
        before, returns = (
            torch.from_numpy(np.ascontiguousarray(batch.rows[:, layout.columns[name]]))
            for name in ("log_prob", "return")
        )
        advantage, ratio = torch.from_numpy(batch.advantages), (log_probs - before).exp()
        clipped = ratio.clamp(1.0 - self.clip, 1.0 + self.clip)
        gained = torch.minimum(ratio * advantage, clipped * advantage)
        statistics = {
            "value_loss": (value - returns).square().sum() / batch.count,
            "policy_loss": -gained.sum() / batch.count,
            "entropy": entropy.sum() / batch.count,
        }
        loss = statistics["policy_loss"] + 0.5 * statistics["value_loss"]
        loss = loss - self.entropy * statistics["entropy"]
        return {"policy": loss, "value": loss}, {
            name: share.detach() for name, share in statistics.items()
        }

    def judged(
        self, rows: FloatArray, nets: Networks, layout: EpisodeLayout
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities of the actions, entropies and values, each of shape (rows, n)."""
        seen = by_agent(
            torch.from_numpy(rows[:, layout.observation].copy()), layout.observation_sizes
        )
        offered = by_agent(torch.from_numpy(rows[:, layout.available].copy()), layout.action_sizes)
        action = torch.from_numpy(rows[:, layout.action].astype(np.int64))
        acts = (action >= 0) & (offered.sum(2) > 0)
        logits = nets.policy[0](seen).masked_fill(offered == 0, -1e9)
        every = logits.log_softmax(2)
        chosen = every.gather(2, action.clamp_min(0)[..., None])[..., 0]
        entropy = -(every.exp() * every).sum(2)
        return chosen * acts, entropy * acts, nets.value[0](seen)[..., 0]

    def prepare(self, rows: FloatArray, nets: Networks, layout: EpisodeLayout) -> None:
        """Fill the log-probabilities, generalised advantages and returns of one episode."""
        with kernels.DEFAULT.selected(), torch.no_grad():
            log_probs, _, values = (part.numpy() for part in self.judged(rows, nets, layout))
        columns, later = layout.columns, np.zeros(layout.agents, np.float32)
        rows[:-1, columns["log_prob"]] = log_probs[:-1]
        reward = rows[:, layout.reward, None]
        goes_on = np.float32(self.discount) * (1.0 - rows[:, layout.terminated, None])
        for step in reversed(range(len(rows) - 1)):
            error = reward[step] + goes_on[step] * values[step + 1] - values[step]
            later = error + goes_on[step] * np.float32(self.trace) * later
            rows[step, columns["advantage"]] = later
            rows[step, columns["return"]] = later + values[step]
