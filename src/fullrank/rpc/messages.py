"""Messages as the types of the library, and back."""

from collections.abc import Iterable

from fullrank.algorithms import Unit
from fullrank.common.types import LearnerId, RunTerm
from fullrank.replay.samplers import EpisodeDraw, Priority, Sample
from fullrank.runs.events import Sent
from fullrank.v1 import common_pb2, controller_pb2


def sample_message(sample: Sample) -> common_pb2.Sample:
    """A sample as a message."""
    priority, episodes = sample.priority, sample.episodes
    return common_pb2.Sample(
        table=sample.table,
        seed=sample.seed,
        iteration=sample.iteration,
        tail=sample.tail,
        head=sample.head,
        size=sample.size,
        priority=None
        if priority is None
        else common_pb2.Priority(first=priority.first, count=priority.count, gain=priority.gain),
        episodes=None
        if episodes is None
        else common_pb2.EpisodeDraw(length=episodes.length, newest=episodes.newest),
    )


def sample_of(message: common_pb2.Sample) -> Sample:
    """A sample from its message."""
    return Sample(
        table=message.table,
        seed=message.seed,
        iteration=message.iteration,
        tail=message.tail,
        head=message.head,
        size=message.size,
        priority=_priority_of(message.priority) if message.HasField("priority") else None,
        episodes=_episodes_of(message.episodes) if message.HasField("episodes") else None,
    )


def _priority_of(message: common_pb2.Priority) -> Priority:
    return Priority(first=message.first, count=message.count, gain=message.gain)


def _episodes_of(message: common_pb2.EpisodeDraw) -> EpisodeDraw:
    return EpisodeDraw(length=message.length, newest=message.newest)


def unit_messages(units: Iterable[Unit]) -> list[common_pb2.Unit]:
    """The units of a run by index."""
    return [common_pb2.Unit(agent=unit.agent, part=unit.part) for unit in units]


def run_term_message(run_term: RunTerm) -> common_pb2.RunTerm:
    """A run term as a message."""
    return common_pb2.RunTerm(run=run_term.run, term=run_term.term)


def run_term_of(message: common_pb2.RunTerm) -> RunTerm:
    """A run term from its message."""
    return RunTerm(message.run, message.term)


def sent_event(header: controller_pb2.Coded, *, learner: LearnerId) -> Sent:
    """The event that a learner is about to send the coded vector of a header."""
    ids = header.ids
    return Sent(
        run=ids.run,
        term=ids.term,
        epoch=ids.epoch,
        iteration=ids.iteration,
        attempt=ids.attempt,
        learner=learner,
        row=header.row,
        batch_digest=header.batch_digest.hex(),
        items=tuple(header.items),
    )
