"""Readers of messages and files, with valid input for each, for the fuzzing benchmark."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError, Message

from fullrank.algorithms import DataMode, Problem, Unit
from fullrank.common.errors import FullrankError
from fullrank.config import PluginSettings, from_toml, load, to_toml
from fullrank.replay import MemoryStorage, Sample, Table
from fullrank.replay.store import Store, table_key
from fullrank.rounds.round import Round
from fullrank.rpc.codec import LEARNER_CHUNKS, Assembler, decode_agent, encode_chunks
from fullrank.rpc.injection import decode_fault, decode_model
from fullrank.rpc.messages import (
    run_term_of,
    sample_message,
    sample_of,
)
from fullrank.rpc.replay_client import append_requests
from fullrank.runs import checkpoint, journal
from fullrank.runs.event_history import read_history
from fullrank.runs.event_log import EventLog
from fullrank.runs.events import Began
from fullrank.runs.record import read_records
from fullrank.v1 import controller_pb2, replay_pb2, straggler_pb2
from fullrank.v1.common_pb2 import Ids, RunTerm
from fullrank_controller.identity import RunIdentity
from fullrank_controller.learners.contributions import ContributionParser
from fullrank_controller.membership.member import Numerics
from fullrank_controller.membership.roster import Roster
from fullrank_controller.membership.row_assignment import make_assignment
from fullrank_controller.progress import RunProgress
from fullrank_controller.rounds.events import Arrived
from fullrank_controller.rounds.open_round import OpenRound
from fullrank_controller.run import Run
from fullrank_replay.appends import check_total
from fullrank_straggler import wire

HEAD_BYTES = 16 * 2**10
"""Malformed part of a file; a table has megabytes of rows behind it."""
UNITS = 3
SIZE = 4
SEEDS = range(4)
Reader = Callable[[bytes], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A reader of untrusted bytes, and valid inputs."""

    read: Reader
    valid: Sequence[bytes]


@contextmanager
def refusals() -> Iterator[None]:
    """Allow the errors that a reader may raise: Fullrank's own, and protobuf's decode error."""
    try:
        yield
    except (FullrankError, DecodeError):
        return


def a_run() -> tuple[Run, OpenRound]:
    """Make a run with an open round whose rows are assigned."""
    identity = RunIdentity(
        name="run",
        term=2,
        iterations=10,
        problem=Problem(
            units=tuple(map(Unit, range(UNITS))),
            unit_sizes=(SIZE,) * UNITS,
            sections=(),
            reads=((),) * UNITS,
            row_size=1,
            data=DataMode(),
        ),
    )
    run = Run.of(
        load(None, environ={}).check().config,
        identity,
        welcome=controller_pb2.Welcome(),
        event_log=EventLog(),
        roster=Roster(),
        progress=RunProgress(),
        fix_numerics=lambda numerics: None,
    )
    numerics = run.roster.numerics = Numerics.of("a", [b"p"])
    for _ in range(4):
        member = run.roster.join("host", now=0.0)
        run.roster.ready(member, numerics=numerics, stable=True)
    requested = PluginSettings(name="cyclic", params={})
    assignment = make_assignment(1, run.roster.eligible, requested=requested, units=UNITS, seed=0)
    assert assignment is not None
    run.membership.assignment = assignment
    round_ = Round(0, assignment.code, target_sizes=[SIZE] * UNITS)
    return run, run.reception.open(assignment, round_, now=0.0)


def learner_stream() -> Target:
    """A learner's messages, up to the round."""
    run, opened = a_run()
    ids = opened.ids
    header = controller_pb2.Coded(ids=ids, row=1, batch_digest=bytes(16), compute_s=0.1)
    chunks = b"".join(map(bytes, encode_chunks(np.ones(SIZE), array_id=1, field=LEARNER_CHUNKS)))
    units = [controller_pb2.UnitDone(ids=ids, unit=unit, digest=bytes(16)) for unit in (1, 2)]
    hello = controller_pb2.Hello(version="1", host="h", domain="z/h", served=RunTerm(run="r"))
    said = [
        controller_pb2.LearnerMessage(hello=hello),
        controller_pb2.LearnerMessage(ready=controller_pb2.Ready(probe=[b"p"], stable=True)),
        controller_pb2.LearnerMessage(units=units),
        controller_pb2.LearnerMessage(coded=header),
    ]
    valid = [*(message.SerializeToString() for message in said), chunks]
    valid.append(b"".join(valid[2:]))

    def read(data: bytes) -> None:
        message = controller_pb2.LearnerMessage.FromString(data)
        run_term_of(message.hello.served)
        round_ = Round(0, opened.assignment.code, target_sizes=[SIZE] * UNITS)
        ContributionParser(run.identity, run.reception, run.roster.members[1]).parse(message)
        while not run.reception.idle:
            event = run.reception._events.get_nowait()
            if isinstance(event, Arrived):
                for unit in range(UNITS):
                    round_.report(unit, bytes(16), learner=1)
                round_.offer(learner=1, row=1, coded=event.coded)

    return Target(read=read, valid=valid)


def controller_stream() -> Target:
    """A controller's messages, as a learner parses them."""
    welcome = controller_pb2.Welcome(run="r", term=1, configuration="seed = 1\n", lease=bytes(16))
    agent = controller_pb2.Agent(name="a", observation_size=3)
    agent.discrete.n = 5
    welcome.agents.append(agent)
    assignment = controller_pb2.Assignment(
        ids=Ids(run="r", term=1),
        rows=[controller_pb2.Row(row=1, units=[0, 1], coefficients=[1.0, 2.0])],
        sample=sample_message(a_sample()),
        sections=[0],
    )
    chunks = b"".join(map(bytes, encode_chunks(np.ones(SIZE), array_id=0, field=15)))
    said = [
        controller_pb2.ControllerMessage(welcome=welcome),
        controller_pb2.ControllerMessage(assignment=assignment),
        controller_pb2.ControllerMessage(commit=controller_pb2.Commit(ids=Ids(run="r"))),
    ]
    valid = [message.SerializeToString() for message in said]

    def read(data: bytes) -> None:
        message = controller_pb2.ControllerMessage.FromString(data)
        assembler = Assembler(np.empty(SIZE), array_id=0)
        for chunk in message.chunks:
            assembler.add(chunk)
        for encoded in message.welcome.agents:
            decode_agent(encoded)
        sample_of(message.assignment.sample)

    return Target(read=read, valid=[*valid, valid[1] + chunks])


def a_sample() -> Sample:
    return Sample(table="t", seed=1, iteration=2, tail=0, head=8, size=4)


def replay() -> Target:
    """Requests to replay, as the servicer parses them."""
    table = Table(MemoryStorage(16, 3), capacity=16)
    rows = np.ones((8, 3), np.float32)
    [append] = append_requests("t", 0, rows, run_term=RunTerm(run="r"))
    gather = replay_pb2.GetSamplesRequest(sample=sample_message(a_sample()))
    opened = replay_pb2.OpenTableRequest(
        table="t", row_size=3, capacity=16, run_term=RunTerm(run="r")
    )
    store = Store(None, sync=False)

    def read(data: bytes) -> None:
        request = replay_pb2.AppendRequest.FromString(data)
        table.truncate(0)
        check_total(request.chunk.total, row_size=table.row_size)
        sent = np.empty((request.chunk.total // 12, 3), np.float32)
        Assembler(sent, array_id=0).add(request.chunk)
        table.append(request.first_position, sent)

    def read_any(data: bytes) -> None:
        for reader in (read, read_sample, read_open):
            with refusals():
                reader(data)

    def read_sample(data: bytes) -> None:
        sample = sample_of(replay_pb2.GetSamplesRequest.FromString(data).sample)
        table.check(sample)
        if sample.size < 1024:
            table.minibatch(sample)

    def read_open(data: bytes) -> None:
        request = replay_pb2.OpenTableRequest.FromString(data)
        if 0 < request.row_size * request.capacity < 2**20:  # as the servicer checks
            key = table_key(request.run_term.run, request.table)
            store.open(key, row_size=request.row_size, capacity=request.capacity)
            store.tables.clear()

    messages: list[Message] = [append, gather, opened]
    return Target(read=read_any, valid=[message.SerializeToString() for message in messages])


def sidecar() -> Target:
    """Messages through a sidecar, and the faults that it is asked to inject."""
    fault = straggler_pb2.Fault(learners=[1])
    fault.corrupt.byte = 3
    model = straggler_pb2.DelayModel(name="fixed_k")
    model.params.update({"k": 1, "delay_s": 0.5})
    request = straggler_pb2.SetInjectionRequest(model=model)
    request.faults.faults.append(fault)

    def read(data: bytes) -> None:
        wire.read_learner(data)
        wire.read_controller(data)
        said = straggler_pb2.SetInjectionRequest.FromString(data)
        decode_model(said.model)
        for encoded in said.faults.faults:
            decode_fault(encoded)

    return Target(read=read, valid=[request.SerializeToString(), *learner_stream().valid])


def configuration() -> Target:
    """The configuration of a run, as TOML."""
    text = to_toml(load(None, environ={}).config).encode()
    return Target(read=lambda data: from_toml(data.decode(errors="replace")), valid=[text])


def in_file(path: Path, read: Callable[[], object]) -> Target:
    """Read a file with a malformed head; the rest must be zeros."""
    whole = path.read_bytes()
    head = whole[:HEAD_BYTES]
    zeros = len(whole) - len(head)

    def write(data: bytes) -> None:
        path.write_bytes(data)
        os.truncate(path, len(data) + zeros)

    def overwritten(data: bytes) -> None:
        write(data)
        try:
            read()
        finally:
            write(head)  # the other readers of this directory need it whole

    return Target(read=overwritten, valid=[head])


def files(scratch: Path) -> dict[str, Target]:
    """All files that a service reads after a crash."""
    log = journal.Journal(scratch / "journal", term=1, first=0, confirm=lambda: None)
    for iteration in SEEDS:
        log.append(iteration, facts={"a": iteration}, updates=np.ones((2, 3), np.float32))
    log.close()
    [segment] = (scratch / "journal").iterdir()
    saved = checkpoint.save(
        scratch / "checkpoints", iteration=1, arrays={"a": np.ones(3)}, facts={}, keep=1
    )
    event_log = EventLog(scratch, "controller")
    event_log.append(Began(run="r", term=1, known=0, resumes_at=0))
    event_log.close()
    store = Store(scratch, sync=False)
    store.open("t", row_size=2**18, capacity=4).append(0, np.zeros((2, 2**18), np.float32))
    [table] = scratch.glob("*.table")
    history = scratch / "history" / "controller.jsonl"
    metrics = scratch / "metrics.jsonl"
    metrics.write_bytes(b'{"iteration": 1, "term": 1}\n')
    readers = {
        "journal": (segment, lambda: journal.read(scratch / "journal", first=0)),
        "manifest": (saved / checkpoint.MANIFEST, lambda: checkpoint.load(saved)),
        "state": (saved / checkpoint.STATE, lambda: checkpoint.load(saved)),
        "history": (history, lambda: read_history(scratch)),
        "table": (table, lambda: Store(scratch, sync=False)),
        "metrics": (metrics, lambda: read_records(metrics)),
    }
    return {name: in_file(path, read) for name, (path, read) in readers.items()}
