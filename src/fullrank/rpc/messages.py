"""Samples and run terms as messages, and back."""

from collections.abc import Iterable

from fullrank.algorithms import Unit
from fullrank.common.types import RunTerm
from fullrank.replay import Priority, Sample
from fullrank.v1 import common_pb2


def sample_message(sample: Sample) -> common_pb2.Sample:
    """A sample as a message."""
    priority = sample.priority
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
    )


def _priority_of(message: common_pb2.Priority) -> Priority:
    return Priority(first=message.first, count=message.count, gain=message.gain)


def unit_messages(units: Iterable[Unit]) -> list[common_pb2.Unit]:
    """The units of a run by index."""
    return [common_pb2.Unit(agent=unit.agent, part=unit.part) for unit in units]


def run_term_message(run_term: RunTerm) -> common_pb2.RunTerm:
    """A run term as a message."""
    return common_pb2.RunTerm(run=run_term.run, term=run_term.term)


def run_term_of(message: common_pb2.RunTerm) -> RunTerm:
    """A run term from its message."""
    return RunTerm(message.run, message.term)
