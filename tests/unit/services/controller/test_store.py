"""The durable side of a term: a later one loses nothing to it, nor an earlier one."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from tests.disks import no_room_beyond
from tests.unit.runs.test_record import record
from tests.unit.services.controller.builders import make_config
from tests.waiting import eventually

from fullrank.audit.proof import Evidence
from fullrank.common.errors import CheckpointUnusable, FullrankError, StaleTerm
from fullrank.replay.samplers import Sample
from fullrank.runs.checkpoint import save, saved
from fullrank.runs.events import EventLog
from fullrank.runs.journal import Journal, read
from fullrank.runs.record import METRICS, IterationRecord, read_records, to_facts
from fullrank.runs.verdicts import FILE as VERDICTS
from fullrank.runs.verdicts import Party, Verdicts, read_verdicts
from fullrank.sinks import JsonLines
from fullrank_controller.persistence import store as module
from fullrank_controller.persistence.restore import Restored, StoredIteration, restore
from fullrank_controller.persistence.run_directory import hold
from fullrank_controller.persistence.store import RunStore
from fullrank_controller.serving import term_raised
from fullrank_controller.term import open_journal

UPDATES = np.zeros((2, 3), np.float32)


def directory(path: Path, *, term: int, taken: bool = False) -> Any:
    def confirm() -> None:
        if taken:
            raise StaleTerm("a later controller has the directory")

    return SimpleNamespace(
        run="run",
        term=term,
        path=path,
        store=None,
        config_digest="mine",
        confirm=confirm,
    )


def run_store(here: Any, training: object = None, **settings: Any) -> RunStore:
    return RunStore(
        here,
        cast(Any, training),
        journal=Journal(here.path / "journal", term=1, first=0, confirm=here.confirm),
        event_log=EventLog(),
        metrics=JsonLines(here.path / METRICS),
        keep=1,
        **{"publish": lambda record: None, **settings},
    )


async def test_a_verdict_is_stored_though_no_iteration_is(tmp_path: Path) -> None:
    config = make_config(f"store.url={tmp_path / 'store'}")
    held = hold(tmp_path / "run", config)
    party = Party(learner=2, process="bb")
    watching = asyncio.create_task(term_raised(held, every_s=0.0))
    Verdicts(held.path).add("convicted", "its update was wrong", iteration=0, party=party)
    assert held.store is not None
    files = held.store.log.files
    await eventually(lambda: VERDICTS in files or watching.done(), what="a verdict in the store")
    watching.cancel()
    await asyncio.wait({watching})
    held.lock.close()
    elsewhere = hold(tmp_path / "other", config)
    assert [verdict.party for verdict in read_verdicts(elsewhere.path)] == [party]
    elsewhere.lock.close()


async def test_a_superseded_controller_saves_no_checkpoint(tmp_path: Path) -> None:
    taken = directory(tmp_path, term=1, taken=True)
    training = SimpleNamespace(state=lambda **_: {"algorithm.policy": UPDATES})
    store = run_store(taken, training)
    with pytest.raises(StaleTerm):
        await store.checkpoint(committed=1, head=0)
    assert not saved(tmp_path / "checkpoints")


def test_an_iteration_without_a_line_is_shown_nowhere_and_ends_the_run(tmp_path: Path) -> None:
    shown, path = list[IterationRecord](), tmp_path / METRICS
    store = run_store(directory(tmp_path, term=1), publish=shown.append)
    store.publish(record(0))
    with (
        no_room_beyond(path.stat().st_size + 20),
        pytest.raises(FullrankError, match=f"cannot write {path}: .*; make room and resume"),
    ):
        store.publish(record(1))
    assert shown == read_records(path) == [record(0)]
    run_store(directory(tmp_path, term=2)).publish_again(record(1))
    assert read_records(path) == [record(0), record(1)]


async def test_the_lines_of_iterations_are_on_disk_before_a_checkpoint_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = dict[int, int]()

    def sync(file: int) -> None:
        synced[os.fstat(file).st_ino] = os.fstat(file).st_size

    def saving(directory: Path, **state: Any) -> None:
        found = (tmp_path / METRICS).stat()
        assert synced[found.st_ino] == found.st_size > 0
        save(directory, **state)

    monkeypatch.setattr(os, "fdatasync", sync)
    monkeypatch.setattr(module, "save", saving)
    training = SimpleNamespace(state=lambda **_: {"algorithm.policy": UPDATES})
    store = run_store(directory(tmp_path, term=1), training)
    store.publish(record(0))
    await store.checkpoint(committed=1, head=0)
    assert saved(tmp_path / "checkpoints")


def test_a_run_that_resumes_has_a_line_of_each_iteration_in_its_journal(tmp_path: Path) -> None:
    """A power cut has lost lines before and after the newest checkpoint, amidst others."""
    here, records = directory(tmp_path, term=2), [record(iteration) for iteration in range(6)]
    journal = open_journal(
        directory(tmp_path, term=1), Restored(committed=0, head=0, known=0, journalled=[])
    )
    sample = Sample(table="transitions", seed=0, iteration=0, tail=0, head=9, size=4)
    evidence = Evidence(sample=sample, digests=(bytes(16),) * 2, reports={}).to_facts()
    for each in records:
        facts = evidence | {"record": to_facts(each)}
        journal.append(each.iteration, facts=facts, updates=UPDATES)
    journal.close()
    facts = {"run": "run", "term": 1, "replay_head": 0}
    save(tmp_path / "checkpoints", iteration=3, arrays={}, facts=facts, keep=2)
    sink = JsonLines(tmp_path / METRICS)
    for iteration in (0, 2, 5):
        sink.write(records[iteration])
    sink.close()
    problem = SimpleNamespace(units=range(2), target=None, vector_size=3)
    training = SimpleNamespace(load=lambda *_, **__: None, problem=problem)
    restored = restore(here, cast(Any, training))
    assert (restored.committed, restored.known) == (4, 6)
    assert read_records(tmp_path / METRICS) == records


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    facts = {"run": "run", "term": 1, "replay_head": 0, "config_digest": "another's"}
    save(tmp_path / "checkpoints", iteration=3, arrays={}, facts=facts, keep=2)
    with pytest.raises(CheckpointUnusable, match="of a run with other settings"):
        restore(directory(tmp_path, term=2), cast(Any, SimpleNamespace()))


async def test_writes_gather_unless_they_hurry(tmp_path: Path) -> None:
    here, hurry = directory(tmp_path, term=1), asyncio.Event()
    store = run_store(here, gather_s=1000.0)
    await store.due(hurry)
    waiting = asyncio.ensure_future(store.due(hurry))
    await asyncio.wait({waiting}, timeout=0)
    assert not waiting.done()
    hurry.set()
    await waiting
    assert not hurry.is_set()


def test_the_iterations_that_a_term_repeats_stay_those_of_the_term_before(tmp_path: Path) -> None:
    """The second term has a checkpoint of two iterations, and two more in the journal."""
    repeated = [cast(StoredIteration, None)] * 2
    begun = Restored(committed=0, head=0, known=0, journalled=[])
    resumed = Restored(committed=2, head=0, known=4, journalled=repeated)
    for term, restored, iterations in ((1, begun, range(4)), (2, resumed, range(4, 6))):
        journal = open_journal(directory(tmp_path, term=term), restored)
        for iteration in iterations:
            journal.append(iteration, facts={"term": term}, updates=UPDATES)
        journal.close()
    entries = read(tmp_path / "journal", first=0)
    assert [entry.facts["term"] for entry in entries] == [1, 1, 1, 1, 2, 2]
