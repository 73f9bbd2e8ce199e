"""IA2C: independent advantage actor-critics, one update a minibatch; on-policy.

Mnih, Badia, Mirza et al.: Asynchronous Methods for Deep Reinforcement Learning, ICML 2016,
arXiv:1602.01783, for every agent by itself as in Papoudakis, Christianos, Schäfer, Albrecht,
NeurIPS Datasets and Benchmarks 2021, arXiv:2006.07869. With V_old and A the value and the
generalised advantage of a step where it was played,

    L = - mean of A ln pi(a | o) + 1/2 mean of (V(o) - (V_old + A))^2 - entropy_weight H
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from fullrank.algorithms import EnvironmentSpec, register
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.likelihoods import categorical
from fullrank.algorithms.on_policy import GroupMembers, Steps, WholeMinibatch
from fullrank.algorithms.on_policy_learner import OnPolicy
from fullrank.algorithms.policies import over_episodes, policy_outputs
from fullrank.algorithms.updates import Entries, Statistics
from fullrank.common.errors import ConfigError

ENTRIES = Entries(("policy_loss", "value_loss", "entropy"), marking="value_loss")


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Module:
    """A perceptron of two hidden layers."""
    layers = [nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(hidden, outputs))


@register("ia2c")
@dataclass(frozen=True, slots=True, kw_only=True)
class IA2C(OnPolicy):
    """IA2C with discrete actions."""

    entries: ClassVar[Entries] = ENTRIES
    read: ClassVar[tuple[str, ...]] = ("policy", "value")
    prepared_by: ClassVar[tuple[str, ...]] = ("value",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.recurrent:
            raise ConfigError("ia2c has no memory: leave algorithm.recurrent = false")

    def networks(self, environment: EnvironmentSpec, agent: int) -> Mapping[str, nn.Module]:
        """The policy and the value of an agent's group."""
        own = self.group_of(environment, agent)
        seen = own.width(own.observation)
        return {"policy": mlp(seen, self.hidden, own.actions), "value": mlp(seen, self.hidden, 1)}

    def value(self, own: GroupMembers, nets: Networks, steps: Steps) -> Tensor:
        """The values of what the members see, shape (rows, members)."""
        agents = list(own.agents)
        seen = own.inputs(steps.observation[:, agents, : own.observation])
        network = nets.value[agents[0]]
        return over_episodes(network, seen, steps.lengths, apart=steps.apart)[..., 0]

    def losses(
        self, own: GroupMembers, nets: Networks, steps: Steps, whole: WholeMinibatch
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        """A unit's share of L and of the statistics."""
        agents = list(own.agents)
        available = steps.available[:, agents, : own.actions]
        outputs = policy_outputs(own, nets, steps)
        chosen, entropy = categorical(outputs, available, steps.action[:, agents])
        acts, advantage = steps.acts[:, agents], steps.derived["advantage"][:, agents]
        expected = steps.derived["value"][:, agents] + advantage
        errors = (self.value(own, nets, steps) - expected).square() * steps.earns[:, agents]
        statistics = {
            "policy_loss": -(advantage * chosen * acts).sum() / whole.acted,
            "value_loss": errors.sum() / whole.count / 2,
            "entropy": (entropy * acts).sum() / whole.acted,
        }
        loss = statistics["policy_loss"] + statistics["value_loss"]
        loss = loss - self.entropy_weight * statistics["entropy"]
        found = {name: each.detach() for name, each in statistics.items()}
        return {"policy": loss, "value": loss}, found

    def judged(self, own: GroupMembers, nets: Networks, steps: Steps) -> Mapping[str, Tensor]:
        """The values of the networks that played."""
        return {"value": self.value(own, nets, steps)}
