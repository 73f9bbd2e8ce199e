"""A container on a stream: when it takes a trunk, what it acts with, and which heads it sends."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np
import pytest
from tests.unit.training.test_container import LAYOUT, container_of, learner_of
from tests.waiting import WAIT_S, eventually

from fullrank.algorithms.container_learner import ContainerLearner
from fullrank.common.errors import ServiceLost
from fullrank.common.types import FloatArray
from fullrank.config.collection import ContainerSettings
from fullrank.training.block_player import PlayedBlock, PlayTerms, Publication
from fullrank.training.container import Container
from fullrank.training.episodes import Outcomes
from fullrank.training.heads import Heads
from fullrank.v1 import controller_pb2 as pb
from fullrank_collector.block_play import ContainerPlay

SECTION, EVERY_S = 3, 10.0
SETTINGS = ContainerSettings(every_s=EVERY_S)


class Clock:
    """A clock that is set by hand."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def play_of(
    container: Container, clock: Clock, settings: ContainerSettings = SETTINGS
) -> ContainerPlay:
    return ContainerPlay(container, settings, section=SECTION, clock=clock)


def terms(version: int) -> PlayTerms:
    network = learner_of(seed=100 + version).acting
    publication = Publication(version=version, sections={SECTION: network})
    return PlayTerms(publication=publication, env_steps=version)


def block(episodes: int) -> PlayedBlock:
    """A block of random episodes."""
    rows = LAYOUT.synthetic(np.random.default_rng(0), episodes)
    lengths = rows[rows[:, LAYOUT.length] > 0, LAYOUT.length].astype(np.int64)
    return PlayedBlock(rows, Outcomes(np.zeros((episodes, 1)), np.zeros(episodes, bool), lengths))


def fresh() -> Container:
    return container_of(Heads(learner_of().head_size))


def test_a_trunk_is_taken_when_it_is_due_or_the_one_before_is_too_old() -> None:
    clock = Clock()
    play = play_of(fresh(), clock)
    taken = [play.terms(terms(version), oldest=0) for version in (4, 5)]
    clock.now_s += EVERY_S
    taken.append(play.terms(terms(6), oldest=0))
    taken.append(play.terms(terms(7), oldest=6))
    taken.append(play.terms(terms(8), oldest=7))
    assert [each.publication.version for each in taken] == [4, 4, 6, 6, 8]
    assert [each.env_steps for each in taken] == [4, 5, 6, 7, 8]


def test_a_container_acts_with_its_own_head_over_the_trunk() -> None:
    container = fresh()
    head, given = container.learner.head, terms(2)
    acting = play_of(container, Clock()).terms(given, oldest=0).publication.sections[SECTION]
    size = len(head)
    assert acting[-size:].tobytes() == head.tobytes()
    assert acting[:-size].tobytes() == given.publication.sections[SECTION][:-size].tobytes()


def test_without_a_head_of_its_own_it_plays_with_the_policy_of_the_run() -> None:
    play, given = play_of(fresh(), Clock(), replace(SETTINGS, learn=False)), terms(2)
    assert play.terms(given, oldest=0).publication is given.publication


def test_a_later_term_may_begin_at_an_earlier_version() -> None:
    container = fresh()
    play_of(container, Clock()).terms(terms(9), oldest=0)
    again = play_of(container, Clock()).terms(terms(7), oldest=0)
    assert again.publication.version == container.trunk_version == 7


def test_a_container_hands_over_a_share_of_a_block_and_says_which() -> None:
    play, played = play_of(fresh(), Clock()), block(10)
    play.terms(terms(4), oldest=0)
    handed_over, report = play.share(played, version=4)
    numbers = list(report.handed_over)
    assert (len(numbers), report.version) == (6, 4)
    assert handed_over.outcomes.lengths.tolist() == played.outcomes.lengths[numbers].tolist()
    episodes = [played.episodes[number] for number in numbers]
    assert handed_over.rows.tobytes() == np.concatenate(episodes).tobytes()


class HeldUpdates:
    """Replaces ``ContainerLearner.update``: each begins, and ends when it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        update = ContainerLearner.update

        def held(
            learner: ContainerLearner, rows: FloatArray, others: Sequence[FloatArray]
        ) -> Mapping[str, float]:
            self.begun.set()
            assert self.go.wait(WAIT_S)
            return update(learner, rows, others)

        monkeypatch.setattr(ContainerLearner, "update", held)


async def test_a_trunk_that_comes_during_an_update_waits_for_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    updates, clock, container = HeldUpdates(monkeypatch), Clock(), fresh()
    play, sent = play_of(container, clock), list[pb.CollectorMessage]()

    async def send(message: pb.CollectorMessage) -> None:
        sent.append(message)

    play.terms(terms(1), oldest=0)
    play.share(block(12), version=1)
    learning = asyncio.create_task(play.learn(send))
    await eventually(updates.begun.is_set, what="an update")
    clock.now_s += EVERY_S
    assert play.terms(terms(2), oldest=0).publication.version == 1
    assert container.trunk_version == 1
    updates.go.set()
    await eventually(lambda: bool(sent), what="a head")
    assert play.terms(terms(2), oldest=0).publication.version == container.trunk_version == 2
    learning.cancel()
    await asyncio.wait({learning})
    assert sent[0].head.updates >= 1


async def test_a_stream_that_ends_waits_for_the_update_that_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    updates, container = HeldUpdates(monkeypatch), fresh()
    play = play_of(container, Clock())
    play.terms(terms(1), oldest=0)
    play.share(block(12), version=1)
    learning = asyncio.create_task(play.learn(_ignore))
    await eventually(updates.begun.is_set, what="an update")
    learning.cancel()
    await asyncio.sleep(0)
    assert not learning.done()
    updates.go.set()
    await asyncio.wait({learning})
    assert container.learner.updates == 1


async def test_a_head_that_is_not_finite_ends_the_stream_and_is_not_sent() -> None:
    container = fresh()
    play = play_of(container, Clock())
    play.terms(terms(1), oldest=0)
    play.share(block(12), version=1)
    container.learner.take_head(np.full_like(container.learner.head, np.nan), updates=5)
    with pytest.raises(ServiceLost, match=r"container 0 was lost in an update, Unsound.*of nan"):
        await asyncio.wait_for(play.learn(_ignore), WAIT_S)


async def test_an_update_that_raises_ends_the_stream_and_the_container(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> NoReturn:
        raise MemoryError("planted")

    monkeypatch.setattr(ContainerLearner, "update", fail)
    container = fresh()
    play = play_of(container, Clock())
    play.terms(terms(1), oldest=0)
    play.share(block(12), version=1)
    assert container.is_sound
    with pytest.raises(ServiceLost, match=r"container 0 was lost in an update, MemoryError"):
        await asyncio.wait_for(play.learn(_ignore), WAIT_S)
    assert not container.is_sound


async def _ignore(message: pb.CollectorMessage) -> None:
    assert message.WhichOneof("message") != "head"
