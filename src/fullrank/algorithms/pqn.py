"""Parallel Q-learning of teams, without replay and without target networks [Gallici24].

A collection is played epsilon-greedily with the parameters theta_old; where it is played, each step
is given the target of its value,

    G_t = r_t + discount (1 - terminated_t) [(1 - trace) max Q_old(t+1) + trace G_(t+1)]

which goes on with max Q_old where a time limit cut the episode off, unless ``time_limit_bootstrap``
is false. The collection is then passed over ``epochs`` times in minibatches of B episodes and T
steps, each of which is an update along the gradient of

    L = 1 / T sum of (G_t - Q_t)^2 over episodes and steps t

Layer normalisation of the agents' network, by the paper's analysis, takes the place of a target
network. Q_t is that of every agent for itself, or a team's: the sum over agents [Sunehag18] or a
monotonic mixture of them [Rashid18], of which the maximum is that of each agent's best action.

Differs from the paper: Adam, whose moments are those of the decoded gradient, in place of RAdam;
the normalisation has no learned scale; a collection is of whole episodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from torch import Tensor, nn

from fullrank.algorithms.action_values import ActionValues
from fullrank.algorithms.base import EnvironmentSpec, register
from fullrank.algorithms.captured import of_trajectories
from fullrank.algorithms.devices import device_of
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.mixers import mixed, monotonic
from fullrank.algorithms.on_policy import annealed
from fullrank.algorithms.problem import DataMode, Problem
from fullrank.algorithms.roles import Algorithm, Gradients
from fullrank.algorithms.sum_optimiser import SumOptimiser
from fullrank.algorithms.trajectories import SCALE, Trajectories, ValueActor
from fullrank.algorithms.updates import Entries, Statistics
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.networks.adam import Adam
from fullrank.networks.fused.cuda import stays_on
from fullrank.replay.episodes import EpisodeLayout

ENTRIES = Entries(("td_loss", "q_values"), marking="td_loss")
"""The statistics that CleanRL's PQN logs, under its names: L, and the mean of Q_t."""

TARGET = "target"
"""Name of the derived column of G."""


@register("pqn")
@dataclass(frozen=True, slots=True, kw_only=True)
class PQN(ActionValues):
    """Parallel Q-learning by gradient coding."""

    batch_size: int = 4
    """B, number of episodes of a minibatch; it divides those of a collection, which has one of each
    of the ``environment.copies``."""
    epochs: int = 2
    """Passes over a collection, each of which draws every episode once."""
    mixer: Literal["none", "sum", "monotonic"] = "sum"
    """What temporal differences are taken of: ``none``, each agent's own value; ``sum``, the sum of
    their values, as in VDN; ``monotonic``, the value of QMIX's mixing network."""
    mixing: int = 32
    """Width of the mixing layer of the monotonic mixer."""
    hypernet: int = 64
    """Width of the hidden layer of its hypernetworks."""
    hidden: int = 128
    """Width of the hidden layers, or of the hidden layer and the recurrent state, of the agents'
    network."""
    recurrent: bool = False
    """Give the agents' network a recurrent state, its memory of an episode's earlier steps."""
    layer_norm: bool = True
    """Normalise hidden layers before ReLU."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    anneal_iterations: int = 0
    """Number of iterations over which the learning rate falls linearly to 0; 0: it is constant."""
    trace: float = 0.65
    """Weight lambda of longer returns in the targets, Q(lambda)."""
    last_action: bool = False
    """Give an agent its last action as input."""

    entries: ClassVar[Entries] = ENTRIES
    """Statistics that CleanRL's PQN logs."""

    def __post_init__(self) -> None:
        ActionValues.__post_init__(self)
        if min(self.epochs, self.mixing, self.hypernet) < 1:
            raise ConfigError("algorithm.epochs, mixing and hypernet must be at least 1")

    def networks(self, environment: EnvironmentSpec) -> Mapping[str, nn.Module]:
        """Build the agents' network, and the mixing network of the monotonic mixer."""
        agent = self.agent(environment)
        if self.mixer != "monotonic":
            return {"agent": agent}
        layout = self.layout(environment)
        return {
            "agent": agent,
            "mixer": monotonic(layout, mixing=self.mixing, hypernet=self.hypernet),
        }

    def mix(self, nets: Networks, values: Tensor, state: Tensor, *, target: bool) -> Tensor:
        """Return what temporal differences are taken of; there are no target networks."""
        if self.mixer == "monotonic":
            return mixed(nets.mixer[0], values, state)
        return values.sum(2, keepdim=True) if self.mixer == "sum" else values

    def losses(
        self, nets: Networks, batch: Trajectories
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        """Compute a unit's share of the loss and of the statistics."""
        values, available = self.values(nets.agent[0], batch)[:-1], batch.available[:-1]
        value = self.joint(nets, values, batch.action, available, batch.state[:-1], target=False)
        valid, count = batch.valid[..., None], batch.steps * value.shape[2]
        loss = ((batch.derived[TARGET] - value) * valid).square().sum() / count
        q_values = (value.detach() * valid).sum() / count
        statistics = {"td_loss": loss.detach(), "q_values": q_values}
        return dict.fromkeys(nets.parameters.groups[0].networks, loss), statistics

    def prepare(self, rows: FloatArray, nets: Networks, layout: EpisodeLayout) -> None:
        """Fill the targets of episodes, played with ``nets``."""
        column = layout.columns[TARGET]
        for steps, targets in self.played(rows, nets, layout):
            rows[steps, column] = targets.cpu().numpy()

    def data_mode(self) -> DataMode:
        """Return the origin of the minibatch: each episode of a collection once an epoch."""
        return DataMode(batch_size=self.batch_size, epochs=self.epochs)

    def layout(self, environment: EnvironmentSpec) -> EpisodeLayout:
        """Return the layout of a step with its target, one of the team or one of each agent."""
        layout = ActionValues.layout(self, environment)
        return replace(layout, derived=((TARGET, layout.agents if self.mixer == "none" else 1),))

    def problem(self, environment: EnvironmentSpec) -> Problem:
        """Describe units, sections and sizes; nothing reads target networks."""
        problem = ActionValues.problem(self, environment)
        unread = {each.id for each in problem.sections if each.role.startswith("target_")}
        reads = tuple(id_ for id_ in problem.reads[0] if id_ not in unread)
        reads_of_units, by = (reads,) * len(problem.units), self.playing(problem)
        return replace(problem, reads=reads_of_units, prepared_by=by)

    def make(self, environment: EnvironmentSpec, *, seed: int, device: str) -> Algorithm:
        """Build all four roles."""
        where, layout = device_of(device), self.layout(environment)
        nets = self.initial(environment, seed=seed, device=where)
        problem = self.problem(environment)
        gradients: Gradients = self.readable(environment, nets, where)
        if stays_on(where) and type(self) is PQN and not (self.recurrent or layout.image_sizes):
            gradients = of_trajectories(self, problem, nets, layout)
        return Algorithm(
            problem=problem,
            parameters=nets.parameters,
            gradients=gradients,
            optimiser=SumOptimiser(
                nets.parameters,
                Adam(learning_rate=self.learning_rate, target_rate=0.0),
                entries=self.entries,
                scale=SCALE,
                clip_norm=self.clip_norm,
                target_every=1,
                rate=annealed(self.learning_rate, self.anneal_iterations),
            ),
            actor=ValueActor(self, nets, layout, seed=seed),
            prepare=lambda rows: self.prepare(rows, nets, layout),
        )
