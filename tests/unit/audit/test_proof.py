"""A proof names exactly the wrong learners, and the first wrong iteration."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.algorithms import Algorithm
from fullrank.audit.ledger import CONTROLLER, Dispute, Ledger
from fullrank.audit.proof import Evidence, Finding, advance, doubtful_from, prove
from fullrank.common.rows import Rows
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.common.updates import snap, unit_digest
from fullrank.replay.samplers import EpisodeDraw, Priority, Sample
from fullrank.replay.table import TABLE
from fullrank.runs.journal_format import Entry

UNITS, SIZE, ITERATIONS = 3, 2, 6
HOLDERS = {0: (0, 1), 1: (1, 2), 2: (2, 0), 3: (0, 1, 2)}
"""Units of each learner; the last one is always late."""


class Sums:
    """Updates that depend on every earlier one, on the minibatch and on the iteration."""

    def __init__(self) -> None:
        self._sum = np.zeros(SIZE, np.float32)

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        for unit in units:
            yield unit, snap(np.tanh(self._sum + batch[0] + np.float32(unit + iteration)) / 2)

    def step(self, targets: Rows) -> Mapping[str, float]:
        self._sum += np.asarray(targets).sum(axis=0)
        return {}


def algorithm_of(sums: Sums) -> Algorithm:
    """An algorithm with the roles that a proof uses."""
    problem = SimpleNamespace(target=None)
    roles = SimpleNamespace(gradients=sums, optimiser=sums, problem=problem)
    return cast(Algorithm, roles)


def sample(iteration: int) -> Sample:
    return Sample(table=TABLE, seed=3, iteration=iteration, tail=0, head=9, size=1)


def gather(sample: Sample) -> FloatArray:
    return np.full((1, SIZE), sample.iteration / 8, np.float32)


Lies = Mapping[tuple[int, int, int], bool]
"""Wrong reports by (iteration, learner, unit); the first reporter's bits are committed."""


def played(lies: Lies, *, stored: bool = True) -> tuple[list[Entry], Ledger, dict[int, set[int]]]:
    """A run in which the first report of a unit is committed.

    Returns:
        The journal, the ledger with all late reports, and the wrong commits of each learner.
    """
    algorithm, ledger, entries = algorithm_of(Sums()), Ledger(), list[Entry]()
    wrong: dict[int, set[int]] = {}
    for iteration in range(ITERATIONS):
        true = dict(
            algorithm.gradients.compute(
                gather(sample(iteration)), range(UNITS), iteration=iteration
            )
        )
        said = {
            learner: {
                unit: snap(true[unit] + np.float32(2.0**-20))
                if (iteration, learner, unit) in lies
                else true[unit]
                for unit in units
            }
            for learner, units in HOLDERS.items()
        }
        first = {0: 0, 1: 1, 2: 2}  # unit to the learner whose bits are committed
        updates = np.stack([said[learner][unit] for unit, learner in first.items()])
        digests = tuple(unit_digest(update) for update in updates)
        vouched = {learner: [unit] for unit, learner in first.items()}
        wrong[iteration] = {
            learner for unit, learner in first.items() if (iteration, learner, unit) in lies
        }
        evidence = Evidence(sample=sample(iteration), digests=digests, reports=vouched)
        facts = {"record": {"exact": True}, **evidence.to_facts()}
        kept = updates if stored else None
        entries.append(Entry(iteration=iteration, facts=facts, updates=kept))
        ledger.commit(iteration, digests, {})
        for learner, own in said.items():
            reported = {unit: unit_digest(update) for unit, update in own.items()}
            ledger.report(iteration, learner, reported)
        algorithm.optimiser.step(updates)
    return entries, ledger, wrong


@pytest.mark.parametrize(
    "wanted",
    [
        sample(4),
        replace(sample(4), priority=Priority(first=1, count=2, gain=3.0)),
        replace(sample(4), draw=EpisodeDraw(length=2, newest=7)),
    ],
    ids=["transitions", "prioritised", "episodes"],
)
def test_evidence_in_the_journal_names_the_same_minibatch(wanted: Sample) -> None:
    evidence = Evidence(sample=wanted, digests=(b"d",), reports={1: [0, 2]})
    facts = json.loads(json.dumps({"record": {"exact": True}, **evidence.to_facts()}))
    assert Evidence.of(Entry(iteration=4, facts=facts, updates=None)) == evidence


def proved(entries: list[Entry], ledger: Ledger, *, since: int = 0) -> Finding | None:
    dispute = ledger.dispute()
    return None if dispute is None else settled(entries, dispute, since=since)


def settled(entries: list[Entry], dispute: Dispute, *, since: int = 0) -> Finding:
    proof = prove(algorithm_of(Sums()), entries, dispute, since=since)
    step = advance(proof, None)
    while isinstance(step, Sample):
        step = advance(proof, gather(step))
    return step


def test_nothing_is_disputed_where_nobody_lies() -> None:
    entries, ledger, _ = played({})
    assert proved(entries, ledger) is None
    assert ledger.audited_before(ITERATIONS) == ITERATIONS - 1


@pytest.mark.parametrize("stored", [True, False])
def test_a_wrong_commit_is_found_and_its_author_named(stored: bool) -> None:
    entries, ledger, _ = played({(2, 1, 1): True}, stored=stored)
    assert proved(entries, ledger) == Finding(wrong=2, culprits={1: 2})


def test_a_late_lie_takes_nothing_back() -> None:
    entries, ledger, _ = played({(2, 3, 1): True})
    assert proved(entries, ledger) == Finding(wrong=None, culprits={3: 2})


def test_what_a_party_committed_before_is_looked_at_again() -> None:
    lies = {(4, 1, 1): True}
    entries, ledger, _ = played({**lies, (2, 1, 1): True})
    ledger.settle(2)  # no other learner reported in iteration 2
    assert proved(entries, ledger) == Finding(wrong=2, culprits={1: 2})
    assert proved(entries, ledger, since=2) == Finding(wrong=2, culprits={1: 2})
    assert proved(entries, ledger, since=3) == Finding(wrong=4, culprits={1: 4})


def test_a_late_lie_hides_no_other_unit_that_its_author_committed_alone() -> None:
    entries, _, _ = played({(2, 1, 1): True})
    lie = Dispute(iteration=2, units=(2,), reports={1: {2: b"it comes late"}})
    assert settled(entries, lie) == Finding(wrong=2, culprits={1: 2})


def test_doubt_begins_where_a_unit_first_rests_on_the_parties_alone() -> None:
    entries, _, _ = played({})
    dispute = Dispute(iteration=4, units=(1,), reports={1: {1: b"one"}, 3: {1: b"another"}})
    assert [doubtful_from(entries, dispute, since=since) for since in (0, 2, 5)] == [0, 2, 4]
    stranger = Dispute(iteration=4, units=(1,), reports={3: {1: b"one"}})
    assert doubtful_from(entries, stranger, since=0) == 4


def test_after_a_wrong_update_that_was_not_stored_nobody_is_judged() -> None:
    entries, ledger, _ = played({(2, 1, 1): True, (4, 3, 0): True}, stored=False)
    ledger.settle(2)  # iteration 4 is disputed, at parameters that no checkpoint has
    assert proved(entries, ledger) == Finding(wrong=2, culprits={1: 2})


def test_two_that_collude_are_both_named_by_a_third_that_is_right() -> None:
    entries, ledger, _ = played({(3, 1, 1): True, (3, 0, 1): True})
    assert proved(entries, ledger) == Finding(wrong=3, culprits={0: 3, 1: 3})


def test_a_unit_that_all_holders_agree_on_is_believed_until_the_controller_computes_it() -> None:
    """The guarantee does not cover learners that collude."""
    lies = {(3, learner, 1): True for learner in (0, 1, 3)}
    entries, ledger, _ = played(lies)
    assert proved(entries, ledger) is None
    algorithm = algorithm_of(Sums())
    for entry in entries[:3]:
        assert entry.updates is not None
        algorithm.optimiser.step(entry.updates)
    [(unit, update)] = algorithm.gradients.compute(gather(sample(3)), [1], iteration=3)
    ledger.report(3, CONTROLLER, {unit: unit_digest(update)})
    assert proved(entries, ledger) == Finding(wrong=3, culprits={0: 3, 1: 3, 3: 3})


@given(
    liars=st.sets(st.sampled_from([0, 1, 2, 3]), max_size=2),
    lies=st.sets(
        st.tuples(st.integers(0, ITERATIONS - 1), st.sampled_from([0, 1, 2, 3]), st.integers(0, 2)),
        max_size=8,
    ),
    stored=st.booleans(),
)
def test_nobody_is_named_wrongly_and_a_disputed_lie_is_found(
    liars: set[int], lies: set[tuple[int, int, int]], stored: bool
) -> None:
    told = {each: True for each in lies if each[1] in liars and each[2] in HOLDERS[each[1]]}
    entries, ledger, wrong = played(told, stored=stored)
    finding = proved(entries, ledger)
    if not told:
        assert finding is None
        return
    if finding is None:  # liars that agree, uncontradicted: impossible with two of four
        assert all(
            len({j for i, j, u in told if (i, u) == (each[0], each[2])}) > 1 for each in told
        )
        return
    assert set(finding.culprits) <= liars
    if finding.wrong is not None:
        assert wrong[finding.wrong]
        assert not any(wrong[each] for each in range(finding.wrong))
