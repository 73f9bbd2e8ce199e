"""``fullrank verify``: recompute the committed iterations of a run from its journal and table."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fullrank.audit.ledger import CONTROLLER
from fullrank.audit.recomputation import Discrepancy, Recomputed, recompute
from fullrank.cli.options import RunArgument, TrustOption
from fullrank.cli.progress import counting
from fullrank.cli.runs import find_run, runnable_config
from fullrank.cli.say import say
from fullrank.common.errors import CheckpointUnusable, Corrupted, FullrankError, Malformed
from fullrank.common.foreign import TEXT, parse_json, read_regular
from fullrank.common.types import FloatArray, LearnerId
from fullrank.replay.mapped_table import TableFile
from fullrank.replay.samplers import Sample
from fullrank.replay.store import table_file
from fullrank.runs.checkpoint import Arrays, load
from fullrank.runs.ending import lasting_caveats
from fullrank.runs.identity import JOURNAL, check_continues, run_of
from fullrank.runs.journal import read_whole
from fullrank.runs.journal_format import Entry
from fullrank.runs.record import published
from fullrank.runs.recovery import standing
from fullrank.runs.snapshot import REPLAY
from fullrank.runs.verdicts import Verdicts
from fullrank.training.block_collection import KeyedCollection
from fullrank.training.trainer import Trainer
from fullrank.wiring.training import Training, training_of

NUMERICS = "numerics.json"
"""File of a run directory with the numerics of the run since its first iteration."""


class Machine(NamedTuple):
    """The numeric fingerprints of this process and of the run."""

    own: str
    run: str = ""
    """Empty if it is not known."""


def compared(run_dir: Path, trainer: Trainer) -> Machine:
    """The fingerprints of this process and of the last learners of a run."""
    own = trainer.algorithm.gradients.fingerprint()
    try:
        content = read_regular(run_dir / NUMERICS, TEXT.size)
        return Machine(own, str(parse_json(content, origin=NUMERICS)[-1]["fingerprint"]))
    except (Malformed, LookupError, TypeError):
        return Machine(own)


def described(outcomes: Sequence[Recomputed], machine: Machine) -> str:
    """Describe the first difference, and name the other iterations that differ; empty if none does.

    Args:
        outcomes: Of all iterations, in order.
        machine: Tells whether this process computes the bits of the run.
    """
    computed = [outcome for outcome in outcomes if not outcome.obstacle]
    differing = [outcome for outcome in computed if outcome.difference is not None]
    if not differing:
        return ""
    first, *others = differing
    difference = first.difference
    assert difference is not None  # selected
    line = (
        f"iteration {first.iteration} differs: {difference.what}{_reported(difference.reporters)}"
    )
    if others:
        line += f"; so do {spans([outcome.iteration for outcome in others])}"
    return line + _meaning(difference, machine, nothing_equal=first is computed[0])


def spans(iterations: Iterable[int]) -> str:
    """Name ascending iterations: "iterations 3 to 5, 8"."""
    ranges: list[list[int]] = []
    for iteration in iterations:
        if ranges and iteration == ranges[-1][-1] + 1:
            ranges[-1][1:] = [iteration]
        else:
            ranges.append([iteration])
    named = ", ".join(" to ".join(map(str, ends)) for ends in ranges)
    single = len(ranges) == 1 and len(ranges[0]) == 1
    return f"iteration{'' if single else 's'} {named}"


def _reported(reporters: Sequence[LearnerId]) -> str:
    learners = [learner for learner in reporters if learner != CONTROLLER]
    return f", which learners {learners} had reported" if learners else ""


def _meaning(difference: Discrepancy, machine: Machine, *, nothing_equal: bool) -> str:
    """What follows about rows, updates and this machine from a difference of units."""
    if not difference.units:
        return ""
    if machine.own == machine.run:
        wrong = "these updates are wrong"
        if difference.every_unit:
            wrong = (
                "the rows that the learners were given are not those in the table, or all their "
                "updates are wrong"
            )
        return f"; this machine has the run's numeric fingerprint, so that {wrong}"
    if difference.every_unit and nothing_equal:
        run = f"; the run's is {machine.run}" if machine.run else ""
        return (
            "; nothing was recomputed before it, so that this machine or version may compute other "
            f"bits than the run's: its numeric fingerprint is {machine.own}{run}"
        )
    flushed = machine.own.partition("; denormals ")[2]  # moments become so after hundreds of steps
    return flushed and f"; this process has denormal numbers {flushed}"


def verify(run: RunArgument, trust: TrustOption = None) -> None:
    """Recompute every committed iteration that journal and table reach back to.

    Units, updates and checkpoints are compared bit for bit with those that the run committed. The
    exit code is 10 if one differs, and the message names the iterations, the first difference and
    the learners that had reported it. Verdicts of the run are repeated.
    """
    path = find_run(run)
    check_continues(path)
    config = runnable_config(path, trust)
    torch.set_num_threads(config.compute.threads)
    training = training_of(config)
    training.collector.close()
    trainer = training.trainer
    if not trainer.algorithm.problem.data.exact:
        raise FullrankError(
            f"{path} cannot be recomputed: its learners drew transitions of their own "
            "(algorithm.data = 'independent')"
        )
    entries, lost = _entries_of(path)
    table = _table_of(path, trainer)
    recomputed = recompute(
        trainer,
        entries,
        seed=config.seed,
        growth=training.collector.collection.least_rows,
        gather=_gather_from(table, trainer.algorithm.problem.row_size),
        saved=_checkpoints_of(path),
        collection=_deriving(training),
        digest_of=lambda first, last: None if table is None else table.digest(first, last),
    )
    damage = _damage_of(table)
    outcomes: list[Recomputed] = []
    failure = f"iteration {entries[-1].iteration + 1} differs: {lost}" if lost else ""
    try:
        with counting("recomputing", len(entries), "iterations") as told:
            for outcome in recomputed:
                outcomes.append(outcome)
                told(len(outcomes))
    except Corrupted as error:
        failure = str(error)
    found = "; ".join(filter(None, [described(outcomes, compared(path, trainer)), failure]))
    if damage and not found:
        raise Corrupted(f"every recomputed iteration is equal, but {damage}")
    if damage and damage not in found:  # an index of the rows may have hidden it
        found = f"{found}; {damage}"
    caveats = [f"caveat: {caveat}" for caveat in lasting_caveats(path)]
    if found:
        raise Corrupted("; ".join([found, *caveats]))  # lost rows may be why it differs
    say(*_report(path, outcomes), *caveats, *Verdicts(path).lines)


def _entries_of(path: Path) -> tuple[list[Entry], str]:
    """The committed iterations in the journal, and why the next one is not in it.

    Raises:
        Corrupted: The journal's first record is damaged.
        FullrankError: The journal has no record.
    """
    known = published(path)  # before the journal, to which a run that goes on adds
    entries, lost = read_whole(path / JOURNAL, published=known)
    if not entries and lost:
        raise Corrupted(f"{path}: the first iteration differs: {lost}")
    if not entries:
        raise FullrankError(f"{path / JOURNAL} holds no committed iteration to recompute")
    return entries, lost


def _deriving(training: Training) -> KeyedCollection | None:
    """The collection that derives columns of rows; None without them, or if draws mix many."""
    collection, epochs = training.collector.collection, training.problem.data.epochs
    if training.algorithm.prepare is None or not epochs:
        return None
    assert isinstance(collection, KeyedCollection)  # which have a number of items
    return collection


def _table_of(path: Path, trainer: Trainer) -> TableFile | None:
    """The run's table; None where learners collect, and no minibatch is drawn.

    Raises:
        Corrupted: The file is damaged, or is the table of another run.
        FullrankError: It cannot be read.
    """
    if not trainer.algorithm.problem.data.batch_size:
        return None
    file = table_file(path / REPLAY, run_of(path))
    try:
        table = TableFile(file)
    except OSError as error:
        raise FullrankError(
            f"cannot read {file}: {error.strerror or error}; if the replay service of this run has "
            "another run directory, copy the file from there"
        ) from error
    if table.row_size != (expected := trainer.algorithm.problem.row_size):
        raise Corrupted(f"{file} has rows of {table.row_size} entries, and the run of {expected}")
    return table


def _damage_of(table: TableFile | None) -> str:
    """The first damaged row of the table; empty if there is none."""
    try:
        if table is not None:
            table.check()
    except Corrupted as error:
        return str(error)
    return ""


def _gather_from(table: TableFile | None, row_size: int) -> Callable[[Sample], FloatArray]:
    def gather(sample: Sample) -> FloatArray:
        if table is None or not sample.size:
            return np.empty((0, row_size), np.float32)
        return table.gather(sample).rows

    return gather


def _checkpoints_of(path: Path) -> Callable[[int], Arrays | None]:
    """Arrays of the checkpoint after an iteration; None if there is none, or none any more."""
    directories = {int(directory.name): directory for directory in standing(path)}

    def saved(iteration: int) -> Arrays | None:
        directory = directories.get(iteration)
        if directory is None:
            return None
        try:
            return load(directory).arrays
        except CheckpointUnusable as error:
            if not directory.exists():  # pruned by a run that goes on
                return None
            raise Corrupted(
                f"iteration {iteration} differs: the checkpoint after it: {error}"
            ) from error

    return saved


def _report(path: Path, outcomes: Sequence[Recomputed]) -> list[str]:
    """The lines that say which iterations were recomputed, and why others were not.

    Raises:
        FullrankError: None was recomputed.
    """
    done = [outcome.iteration for outcome in outcomes if not outcome.obstacle]
    first = outcomes[0].iteration
    reasons = [f"iterations 0 to {first - 1}: the journal begins with {first}"] if first else []
    for missed, group in groupby(outcomes, key=lambda outcome: bool(outcome.obstacle)):
        if missed:
            *_, last = members = list(group)
            reasons.append(f"{spans(member.iteration for member in members)}: {last.obstacle}")
    if not done:
        raise FullrankError(f"{path}: nothing can be recomputed: {'; '.join(reasons)}")
    return [
        f"{path}: {len(done)} committed iterations recomputed, {done[0]} to {done[-1]}: units, "
        "updates and checkpoints are equal in every bit",
        *(f"not recomputed: {reason}" for reason in reasons),
    ]
