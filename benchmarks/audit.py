"""Claim: no error that digests can show is committed, and no honest learner is named.

For every exact code, rounds receive the rows of random decodable sets J:

* one bit of one learner's vector is flipped: the round catches it before the commit, or the
  committed bits are unaffected; the learner is named if the other rows have rank M;
* one learner miscomputes a unit and reports the matching digest: the update is not committed if two
  learners reported the unit (otherwise late digests and audits must find it,
  docs/adr/0016-audit-and-rollback.md);
* all learners are right: the round commits and names no learner.

Prints one Markdown table; exits with 1 if any trial fails.

    python benchmarks/audit.py --trials 10000
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from fullrank.codes import Code, make_code, support
from fullrank.common.errors import InvalidContribution
from fullrank.common.types import FloatArray, Matrix
from fullrank.common.updates import snap, unit_digest
from fullrank.rounds.decision import Decision, Decoded, Verdict
from fullrank.rounds.round import Round

ROWS, UNITS, ENTRIES = 6, 3, 4
CODES: dict[str, dict[str, Any]] = {
    "uncoded": {},
    "replication": {},
    "cyclic 1": {"tolerance": 1},
    "cyclic 3": {"tolerance": 3},
    "mds": {},
    "random_sparse": {},
    "ldpc": {},
    "ldgm": {},
}
SHARE = 5
"""For every so many flips there is one miscomputation and one clean round."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000, help="flipped bits for each code")
    trials = parser.parse_args().trials
    print(
        f"{trials} flipped bits for each code of {ROWS} rows and {UNITS} units.\n\n"
        "| code | flips caught or harmless / all | culprits named / nameable "
        "| miscomputations caught / reported twice | committed, reported once "
        "| wrongly named | false alarms / clean rounds |\n|---|---|---|---|---|---|---|"
    )
    failed = False
    clean = 0
    for label, params in CODES.items():
        code = make_code(label.split()[0], rows=ROWS, units=UNITS, seed=1, **params)
        count = measured(code, trials)
        clean += count["clean"]
        print(
            f"| {label} | {count['harmless']} / {count['flips']} "
            f"| {count['named']} / {count['nameable']} "
            f"| {count['caught']} / {count['reported twice']} | {count['slipped']} "
            f"| {count['named wrongly']} | {count['alarms']} / {count['clean']} |",
            flush=True,
        )
        failed |= (
            count["harmless"] < count["flips"]
            or count["named"] < count["nameable"]
            or count["caught"] < count["reported twice"]
            or bool(count["named wrongly"] or count["alarms"])
        )
    print(f"\n{clean} clean rounds in all; " + ("a claim fails" if failed else "all claims hold"))
    sys.exit(failed)


def measured(code: Code, trials: int) -> Counter[str]:
    """Count the outcomes of all kinds of trials."""
    generator = np.random.default_rng([code.rows, code.units, int(code.load.sum())])
    count: Counter[str] = Counter()
    for received in sets(code, trials, generator):
        flipped(code, received, count, generator)
    for received in sets(code, trials // SHARE, generator):
        miscomputed(code, received, count, generator)
        clean(code, received, count, generator)
    return count


def sets(code: Code, trials: int, generator: np.random.Generator) -> Iterator[list[int]]:
    """Yield random sets J of rank M, in order of arrival."""
    count = 0
    while count < trials:
        received = generator.permutation(code.rows)[: generator.integers(UNITS, code.rows + 1)]
        working = [int(row) for row in received if code.load[row]]
        if rank(code, working) == UNITS:
            count += 1
            yield working


def rank(code: Code, rows: list[int]) -> int:
    return int(np.linalg.matrix_rank(code.matrix[rows])) if rows else 0


def draw(generator: np.random.Generator) -> FloatArray:
    """Draw updates of several scales, a fifth of the entries zero, shape (M, ENTRIES)."""
    scale = 10.0 ** generator.uniform(-9, -1, (UNITS, 1))
    updates = generator.standard_normal((UNITS, ENTRIES)) * scale
    updates[generator.random(updates.shape) < 0.2] = 0.0
    return snap(updates.clip(-0.5, 0.5).astype(np.float32))


def encoded(code: Code, row: int, updates: FloatArray) -> Matrix:
    return np.asarray(code.matrix[row] @ updates.astype(np.float64))


def hand_in(round_: Round, code: Code, row: int, updates: FloatArray, coded: Matrix) -> None:
    """Report the row's digests and offer its vector; the learner has the number of its row."""
    for unit in support(code.matrix[row]):
        round_.report(unit, unit_digest(updates[unit]), learner=row)
    round_.offer(learner=row, row=row, coded=coded)


def opened(code: Code) -> Round:
    return Round(0, code, target_sizes=[ENTRIES] * UNITS)


def is_true(decision: Decision, updates: FloatArray) -> bool:
    """Tell if the decision commits the true bits."""
    if not isinstance(decision, Decoded) or decision.verdict is not Verdict.COMMIT:
        return False
    return decision.updates.tobytes() == updates.tobytes()


def culprit_of(decision: Decision) -> int | None:
    """The learner that was left out."""
    return decision.culprit if isinstance(decision, Decoded) else None


def flipped(
    code: Code, received: list[int], count: Counter[str], generator: np.random.Generator
) -> None:
    """Flip one bit of one entry of one learner's vector."""
    updates, culprit = draw(generator), int(generator.choice(received))
    round_ = opened(code)
    count["flips"] += 1
    for row in received:
        coded = encoded(code, row, updates)
        if row == culprit:
            entry, bit = generator.integers(ENTRIES), generator.integers(64)
            coded.view(np.uint64)[entry] ^= np.uint64(1) << np.uint64(bit)
            changed = not np.array_equal(coded, encoded(code, row, updates))  # -0.0 is 0.0
        try:
            hand_in(round_, code, row, updates, coded)
        except InvalidContribution:  # no longer finite: refused on arrival, by name
            count["harmless"] += 1
            return
    decision = round_.decide()
    count["harmless"] += decision.verdict is not Verdict.COMMIT or is_true(decision, updates)
    count["named wrongly"] += culprit_of(decision) not in (None, culprit)
    visible = changed and not (culprit_of(decision) is None and is_true(decision, updates))
    if visible and rank(code, [row for row in received if row != culprit]) == UNITS:
        count["nameable"] += 1
        count["named"] += culprit_of(decision) == culprit and is_true(decision, updates)


def miscomputed(
    code: Code, received: list[int], count: Counter[str], generator: np.random.Generator
) -> None:
    """One learner errs in one entry of a unit, and reports and sends the wrong result."""
    updates, culprit = draw(generator), int(generator.choice(received))
    unit = int(generator.choice(support(code.matrix[culprit])))
    wrong = updates.copy()
    wrong[unit, generator.integers(ENTRIES)] += np.float32(2.0 ** -int(generator.integers(8, 36)))
    wrong = snap(wrong)
    round_ = opened(code)
    for row in received:
        computed = wrong if row == culprit else updates
        hand_in(round_, code, row, computed, encoded(code, row, computed))
    decision = round_.decide()
    count["named wrongly"] += culprit_of(decision) not in (None, culprit)
    caught = decision.verdict is not Verdict.COMMIT or is_true(decision, updates)
    if np.count_nonzero(code.matrix[received, unit]) >= 2:
        count["reported twice"] += 1
        count["caught"] += caught
    else:
        count["slipped"] += not caught


def clean(
    code: Code, received: list[int], count: Counter[str], generator: np.random.Generator
) -> None:
    """All learners are right."""
    updates, round_ = draw(generator), opened(code)
    for row in received:
        hand_in(round_, code, row, updates, encoded(code, row, updates))
    decision = round_.decide()
    count["clean"] += 1
    count["alarms"] += culprit_of(decision) is not None or not is_true(decision, updates)


if __name__ == "__main__":
    main()
