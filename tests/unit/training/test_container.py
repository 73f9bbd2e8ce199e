"""A container: what it learns, what it only reads, what it hands over and what it keeps."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest
import torch
from tests.conformance.pretended_device import DEVICE, pretended_device
from torch import Tensor

from fullrank.algorithms import EnvironmentSpec
from fullrank.algorithms.action_values import episode_layout
from fullrank.algorithms.container_learner import ContainerLearner, Diversity
from fullrank.algorithms.groups import Networks
from fullrank.algorithms.qmix import QMIX
from fullrank.algorithms.qplex import QPLEX
from fullrank.algorithms.trajectories import Trajectories
from fullrank.algorithms.updates import Entries, Statistics
from fullrank.algorithms.values import ValueLearner
from fullrank.algorithms.vdn import VDN
from fullrank.common.errors import InvalidContribution
from fullrank.common.types import FloatArray
from fullrank.environments import AgentSpec, Discrete
from fullrank.replay.episodes import episodes_in
from fullrank.training.container import Container, EpisodeBuffer, HandOver, ReturnPriority
from fullrank.training.heads import ContainerHead, Heads

AGENTS = tuple(
    AgentSpec(name=f"agent_{i}", observation_size=5, action=Discrete(4)) for i in range(3)
)
ENVIRONMENT = EnvironmentSpec(agents=AGENTS, state_size=6)
LAYOUT = episode_layout(ENVIRONMENT)
LEARNERS: dict[str, ValueLearner] = {
    "qmix": QMIX(batch_size=8, hidden=8, mixing=4, hypernet=6, target_every=3),
    "qplex": QPLEX(batch_size=8, hidden=8, mixing=4, hypernet=6, heads=2),
    "vdn": VDN(batch_size=8, hidden=8, optimiser="adam", target_every=3),
    "without memory": QMIX(batch_size=8, hidden=8, mixing=4, recurrent=False),
}
BOTH = Diversity(weight=2.0, target=0.5)


def learner_of(
    name: str = "qmix",
    *,
    seed: int = 0,
    diversity: Diversity | None = BOTH,
    device: str = "cpu",
) -> ContainerLearner:
    return ContainerLearner(
        LEARNERS[name], ENVIRONMENT, diversity=diversity, seed=seed, device=device
    )


def played(count: int, *, seed: int = 0) -> list[FloatArray]:
    rows = LAYOUT.synthetic(np.random.default_rng(seed), count)
    return [rows[place] for place in episodes_in(rows, LAYOUT.length)]


def trunk(learner: ContainerLearner) -> bytes:
    """Bits of the trunks of the network and of its target."""
    (group,) = learner._parameters.groups
    views = (group.view(0, role)[: -learner.head_size] for role in ("agent", "target_agent"))
    return b"".join(view.tobytes() for view in views)


def container_of(heads: Heads, number: int = 0, *, seed: int = 0) -> Container:
    return Container(
        number,
        learner=learner_of(seed=seed),
        buffer=EpisodeBuffer(50, exponent=0.6),
        priority=ReturnPriority(low=-5, high=5),
        hand_over=HandOver(0.6, seed=1, container=number),
        batch_size=8,
        seed=1,
        heads=heads,
    )


@pytest.mark.parametrize("name", LEARNERS)
def test_updates_never_touch_the_trunk(name: str) -> None:
    learner, others = learner_of(name), [learner_of(name, seed=seed).head for seed in (1, 2)]
    learner.take_trunk(learner_of(name, seed=9).acting)
    before, heads = trunk(learner), [learner.head]
    for seed in range(4):
        learner.update(np.concatenate(played(8, seed=seed)), others)
        heads.append(learner.head)
    assert trunk(learner) == before
    assert all((old != new).any() for old, new in pairwise(heads))


@pytest.mark.integration
@pytest.mark.parametrize("name", LEARNERS)
def test_an_update_on_a_device_reads_no_memory_of_the_host_and_has_no_tf32(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pretended_device(monkeypatch):
        learner, other = learner_of(name, device=DEVICE), learner_of(name, seed=1)
        learner.update(np.concatenate(played(8)), [other.head])
    assert learner.updates == 1


def test_containers_standardise_rewards_as_learners_do() -> None:
    heads, rows = [], np.concatenate(played(8))
    for learner in (
        (asked := VDN(batch_size=8, hidden=8, standardise_rewards=True)),
        VDN(batch_size=8, hidden=8),
    ):
        own = asked.minibatch(rows, LAYOUT) if learner != asked else rows
        container = ContainerLearner(learner, ENVIRONMENT, diversity=None, seed=0, device="cpu")
        container.update(own, [])
        heads.append(container.head)
    np.testing.assert_array_equal(heads[0], heads[1])


class Named(VDN):
    entries = Entries(("loss",))

    def losses(
        self, nets: Networks, batch: Trajectories
    ) -> tuple[Mapping[str, Tensor], Statistics]:
        return VDN.losses(self, nets, batch)[0], {"loss": 7.0}


def test_a_learner_s_own_statistics_are_those_of_its_containers() -> None:
    learner = ContainerLearner(
        Named(batch_size=8, hidden=8), ENVIRONMENT, diversity=None, seed=0, device="cpu"
    )
    statistics = learner.update(np.concatenate(played(8)), [])
    assert statistics["loss"] == 7.0
    assert "td_error_abs" not in statistics


@pytest.mark.parametrize("name", LEARNERS)
def test_a_trunk_is_taken_whole_and_the_head_stays(name: str) -> None:
    learner, centraliser = learner_of(name), learner_of(name, seed=5)
    head = learner.head
    learner.take_trunk(centraliser.acting)
    assert trunk(learner) == trunk(centraliser)
    assert learner.head.tobytes() == head.tobytes()


@pytest.mark.parametrize("name", LEARNERS)
def test_without_others_the_loss_is_that_of_the_centraliser(name: str) -> None:
    learner = learner_of(name)
    episodes = played(8)
    batch = Trajectories.of(episodes, LAYOUT, device=torch.device("cpu"))
    nets: Networks = learner._nets
    losses, shares = LEARNERS[name].losses(nets, batch)
    wanted = losses["agent"]
    loss, found, apart = learner.loss(batch, [])
    assert apart is None
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert found == pytest.approx(shares, rel=1e-4, abs=1e-6)
    layers = [*nets.agent[0].children()][-1]
    assert isinstance(layers, torch.nn.Linear)
    for own, other in zip(
        torch.autograd.grad(loss, [*layers.parameters()]),
        torch.autograd.grad(wanted, [*layers.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-7)


def test_the_term_draws_equal_heads_apart() -> None:
    """Two containers that begin as one, with nothing to gain, come to act differently."""
    silent = [each.copy() for each in played(8)]
    for each in silent:
        each[:, LAYOUT.reward] = 0.0
    learner, other = learner_of(), learner_of()
    head = learner.head
    head[::3] += 0.3
    learner.take_head(head, updates=0)
    rows = np.concatenate(silent)
    apart = [learner.update(rows, [other.head])["divergence"] for _ in range(60)]
    assert apart[-1] > 2 * apart[0]


def test_a_restarted_container_has_its_head_again() -> None:
    heads = Heads(learner_of().head_size)
    container = container_of(heads)
    container.take_trunk(0, learner_of(seed=7).acting)
    assert not container.may_learn
    container.store(played(12))
    assert container.may_learn
    for _ in range(3):
        container.update()
    container.publish()
    again = container_of(heads, seed=99)
    assert again.learner.head.tobytes() == container.learner.head.tobytes()
    assert again.learner.updates == 3


def test_a_head_is_no_use_if_it_is_not_finite_or_a_newer_one_is_known() -> None:
    heads = Heads(learner_of().head_size)
    container = container_of(heads)
    head = container.learner.head
    assert container.is_sound
    container.learner.take_head(np.full_like(head, np.nan), updates=3)
    assert not container.is_sound
    container.learner.take_head(head, updates=3)
    container.publish()
    assert container.is_sound
    heads.publish(0, ContainerHead(4, head))
    assert not container.is_sound
    assert container_of(heads).is_sound


def test_equal_containers_have_equal_histories() -> None:
    histories = []
    for _ in range(2):
        container = container_of(Heads(learner_of().head_size))
        container.take_trunk(0, learner_of(seed=7).acting)
        travelled = [container.store(played(9, seed=seed)).tolist() for seed in range(4)]
        statistics = [container.update() for _ in range(3)]
        histories.append((travelled, statistics, container.learner.acting.tobytes()))
    assert histories[0] == histories[1]
    assert sum(map(len, histories[0][0])) == 22  # 0.6 of 36, rounded


def test_an_older_trunk_is_not_taken() -> None:
    container = container_of(Heads(learner_of().head_size))
    container.take_trunk(4, learner_of(seed=7).acting)
    before = trunk(container.learner)
    container.take_trunk(3, learner_of(seed=8).acting)
    assert trunk(container.learner) == before
    assert container.trunk_version == 4


def test_the_newest_head_of_each_container_wins() -> None:
    heads = Heads(2)
    new, old = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    assert heads.publish(1, ContainerHead(5, new))
    assert not heads.publish(1, ContainerHead(4, old))
    assert heads.publish(0, ContainerHead(1, old))
    assert [each.tolist() for each in heads.others(2)] == [[3, 4], [1, 2]]
    assert [each.tolist() for each in heads.others(0)] == [[1, 2]]


def test_a_head_that_is_not_finite_is_refused() -> None:
    heads = Heads(1)
    assert not heads.publish(0, ContainerHead(1, np.array([np.inf], np.float32)))
    assert heads.of(0) is None
    with pytest.raises(InvalidContribution, match="container 0 has shape"):
        heads.publish(0, ContainerHead(1, np.zeros(2, np.float32)))
