"""Nothing wrong is committed that digests can show, and nobody is named wrongly.

For every exact code, rounds with the rows of a random set J that decodes:

* a bit flipped anywhere in one learner's vector: caught before the commit, or without effect on the
  committed bits; its learner named wherever the other rows still have rank M;
* a wrong computation under a digest that fits: never committed where two learners reported the
  unit (elsewhere late digests and audits must find it, docs/adr/0016-audit-and-rollback.md);
* a clean round: committed, and nobody is named.

Prints one markdown table; exits with 1 if any of it fails once.

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
from fullrank.rounds.round import Decision, Round, Verdict

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
"""Of all trials, one in so many is a wrong computation, and one a clean round, beside the flips."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000, help="flipped bits for each code")
    trials = parser.parse_args().trials
    print(
        f"{trials} flipped bits for each code of {ROWS} rows and {UNITS} units.\n\n"
        "| code | flips caught, or without effect | learner named, of those that can be "
        "| wrong computations caught, of those reported twice | reported once, and committed "
        "| named wrongly | false alarms, of clean rounds |\n|---|---|---|---|---|---|---|"
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
    """Outcomes of all kinds of trials."""
    generator = np.random.default_rng([code.rows, code.units, int(code.load.sum())])
    count: Counter[str] = Counter()
    for received in sets(code, trials, generator):
        flipped(code, received, count, generator)
    for received in sets(code, trials // SHARE, generator):
        miscomputed(code, received, count, generator)
        clean(code, received, count, generator)
    return count


def sets(code: Code, trials: int, generator: np.random.Generator) -> Iterator[list[int]]:
    """Random sets J of rank M, in order of arrival."""
    made = 0
    while made < trials:
        received = generator.permutation(code.rows)[: generator.integers(UNITS, code.rows + 1)]
        working = [int(row) for row in received if code.load[row]]
        if rank(code, working) == UNITS:
            made += 1
            yield working


def rank(code: Code, rows: list[int]) -> int:
    return int(np.linalg.matrix_rank(code.matrix[rows])) if rows else 0


def draw(generator: np.random.Generator) -> FloatArray:
    """Updates of several scales, a fifth of the entries zero, shape (M, ENTRIES)."""
    scale = 10.0 ** generator.uniform(-9, -1, (UNITS, 1))
    updates = generator.standard_normal((UNITS, ENTRIES)) * scale
    updates[generator.random(updates.shape) < 0.2] = 0.0
    return snap(updates.clip(-0.5, 0.5).astype(np.float32))


def encoded(code: Code, row: int, updates: FloatArray) -> Matrix:
    return np.asarray(code.matrix[row] @ updates.astype(np.float64))


def hand_in(round_: Round, code: Code, row: int, updates: FloatArray, coded: Matrix) -> None:
    """What the learner of this row reports and sends; learners are known by their rows."""
    for unit in support(code.matrix[row]):
        round_.report(unit, unit_digest(updates[unit]), learner=row)
    round_.offer(learner=row, row=row, coded=coded)


def opened(code: Code) -> Round:
    return Round(0, code, unit_sizes=[ENTRIES] * UNITS)


def is_true(decision: Decision, updates: FloatArray) -> bool:
    """Committed, and the true bits."""
    found = decision.updates
    committed = decision.verdict is Verdict.COMMIT and found is not None
    return bool(committed and found is not None and found.tobytes() == updates.tobytes())


def flipped(
    code: Code, received: list[int], count: Counter[str], generator: np.random.Generator
) -> None:
    """One bit of one entry of one learner's vector."""
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
        except InvalidContribution:  # not finite any more: refused at the door, by name
            count["harmless"] += 1
            return
    decision = round_.decide()
    count["harmless"] += decision.verdict is not Verdict.COMMIT or is_true(decision, updates)
    count["named wrongly"] += decision.culprit not in (None, culprit)
    visible = changed and not (decision.culprit is None and is_true(decision, updates))
    if visible and rank(code, [row for row in received if row != culprit]) == UNITS:
        count["nameable"] += 1
        count["named"] += decision.culprit == culprit and is_true(decision, updates)


def miscomputed(
    code: Code, received: list[int], count: Counter[str], generator: np.random.Generator
) -> None:
    """One learner computes one entry of one unit wrong, and reports and sends what it computed."""
    updates, culprit = draw(generator), int(generator.choice(received))
    unit = int(generator.choice(support(code.matrix[culprit])))
    wrong = updates.copy()
    wrong[unit, generator.integers(ENTRIES)] += np.float32(2.0 ** -int(generator.integers(8, 36)))
    wrong = snap(wrong)
    round_ = opened(code)
    for row in received:
        own = wrong if row == culprit else updates
        hand_in(round_, code, row, own, encoded(code, row, own))
    decision = round_.decide()
    count["named wrongly"] += decision.culprit not in (None, culprit)
    caught = decision.verdict is not Verdict.COMMIT or is_true(decision, updates)
    if np.count_nonzero(code.matrix[received, unit]) >= 2:
        count["reported twice"] += 1
        count["caught"] += caught
    else:
        count["slipped"] += not caught


def clean(
    code: Code, received: list[int], count: Counter[str], generator: np.random.Generator
) -> None:
    """Everybody is right."""
    updates, round_ = draw(generator), opened(code)
    for row in received:
        hand_in(round_, code, row, updates, encoded(code, row, updates))
    decision = round_.decide()
    count["clean"] += 1
    count["alarms"] += decision.culprit is not None or not is_true(decision, updates)


if __name__ == "__main__":
    main()
