"""Messages as the types of the library, and back; versions of neighbours."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, TypeVar, cast

import numpy as np
from google.protobuf.message import Message

from fullrank import __version__
from fullrank.algorithms import Unit
from fullrank.common.errors import InvalidContribution, VersionMismatch
from fullrank.common.schema import ORDINALS
from fullrank.common.text import plain
from fullrank.common.types import LearnerId, RunTerm
from fullrank.net.codec import Assembler, chunks
from fullrank.replay.episodes import EpisodeLayout
from fullrank.replay.samplers import EachOnce, EpisodeDraw, Priority, RowDraw, Sample
from fullrank.runs.events import Sent
from fullrank.runs.identity import series
from fullrank.training.heads import ContainerHead
from fullrank.v1 import common_pb2, controller_pb2, replay_pb2
from fullrank.v1 import controller_pb2 as pb

T = TypeVar("T")
M = TypeVar("M", bound=Message)


def sample_message(sample: Sample) -> common_pb2.Sample:
    """A sample as a message."""
    episodes = sample.draw if isinstance(sample.draw, EpisodeDraw) else None
    return common_pb2.Sample(
        table=sample.table,
        seed=sample.seed,
        iteration=sample.iteration,
        tail=sample.tail,
        head=sample.head,
        size=sample.size,
        priority=message_of(common_pb2.Priority, sample.priority),
        episodes=message_of(common_pb2.EpisodeDraw, episodes),
        once=message_of(common_pb2.EachOnce, sample.once),
    )


def message_of(kind: type[M], part: Any) -> M | None:
    """The message of an object with the same fields; None if there is no object."""
    if part is None:
        return None
    return kind(**{name: getattr(part, name) for name in kind.DESCRIPTOR.fields_by_name})


def sample_of(message: common_pb2.Sample) -> Sample:
    """A sample from its message."""
    return Sample(
        table=message.table,
        seed=message.seed,
        iteration=message.iteration,
        tail=message.tail,
        head=message.head,
        size=message.size,
        priority=_part(Priority, message, "priority"),
        draw=_part(EpisodeDraw, message, "episodes") or RowDraw(),
        once=_part(EachOnce, message, "once"),
    )


def _part(kind: type[T], message: common_pb2.Sample, name: str) -> T | None:
    """A part of a sample from its message."""
    if not message.HasField(name):  # type: ignore[arg-type]
        return None
    part, own = getattr(message, name), fields(cast(Any, kind))
    return kind(**{field.name: getattr(part, field.name) for field in own})


def episode_layout_of(sizes: replay_pb2.EpisodeSizes, *, row_size: int) -> EpisodeLayout:
    """The columns of a step from the message of its sizes.

    Args:
        sizes: The sizes.
        row_size: Entries of a row, at least.

    Raises:
        InvalidContribution: A value is not valid, or such steps are larger.
    """
    if not sizes.action_sizes or len(sizes.action_sizes) != len(sizes.observation_sizes):
        raise InvalidContribution("episodes lacks the sizes of some agent")
    if not all(sizes.action_sizes):
        raise InvalidContribution("episodes.action_sizes has an agent without actions")
    layout = EpisodeLayout(
        observation_sizes=tuple(sizes.observation_sizes),
        action_sizes=tuple(sizes.action_sizes),
        state_size=sizes.state_size,
    )
    if layout.row_size > row_size:
        raise InvalidContribution(f"episodes needs rows of {layout.row_size}, not {row_size}")
    return layout


def unit_messages(units: Iterable[Unit]) -> list[common_pb2.Unit]:
    """The units of a run by index."""
    return [common_pb2.Unit(agents=unit.agents, part=unit.part) for unit in units]


def run_term_message(run_term: RunTerm) -> common_pb2.RunTerm:
    """A run term as a message."""
    return common_pb2.RunTerm(run=run_term.run, term=run_term.term, instance=run_term.instance)


def run_term_of(message: common_pb2.RunTerm) -> RunTerm:
    """A run term from its message."""
    return RunTerm(message.run, message.term, message.instance)


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


def equal_setup(first: controller_pb2.Welcome, second: controller_pb2.Welcome) -> bool:
    """Return whether two greetings describe runs of equal configuration and environment."""
    return all(
        getattr(first, name) == getattr(second, name)
        for name in ("configuration", "agents", "state_size", "masked")
    )


def head_message(container: int, head: ContainerHead) -> pb.ContainerHead:
    """Encode the head of a container."""
    return pb.ContainerHead(
        container=container,
        updates=head.version,
        chunks=chunks(head.values.astype(np.float32, copy=False), array_id=container),
    )


def head_of(message: pb.ContainerHead, *, size: int) -> ContainerHead:
    """Decode a head.

    Args:
        message: The message.
        size: Entries of a head.

    Raises:
        InvalidContribution: It has another size, or updates beyond an ordinal, or does not match
            its checksums.
    """
    if message.updates >= ORDINALS:
        raise InvalidContribution(f"head.updates is {message.updates}, beyond {ORDINALS - 1}")
    values = np.empty(size, np.float32)
    assembler = Assembler(values, array_id=message.container)
    try:
        for chunk in message.chunks:
            assembler.add(chunk)
    except InvalidContribution as error:
        raise InvalidContribution(f"the head of container {message.container}: {error}") from None
    if not assembler.complete:
        raise InvalidContribution(f"the head of container {message.container} is not complete")
    return ContainerHead(message.updates, values)


def check_version(version: str, *, peer: str, own: str) -> None:
    """Refuse a neighbour of another minor release; patches of one release work together.

    Args:
        version: The version that it names; empty if it is too old to name one.
        peer: Its role, for the message.
        own: The role of this process.

    Raises:
        VersionMismatch: The releases differ; the message names both versions.
    """
    if series(version) != series(__version__):
        raise VersionMismatch(
            f"version {plain(version[:32]) or 'unknown'} of the {peer} differs from the {own}'s "
            f"{__version__}; install versions of one minor release on both"
        )
