"""Verdicts follow from samples by the rules of docs/verdicts.md."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.common.types import Array
from fullrank_papers.cells import CELLS, CellStore, gather
from fullrank_papers.claims import (
    EXACT,
    RULES,
    Held,
    Strength,
    by_samples,
    corrected,
    judge,
)
from fullrank_papers.cli import paper_of
from fullrank_papers.paper import Findings, differences

ROOT = Path(__file__).resolve().parents[3]


def samples(*values: float) -> Array:
    return np.array(values)


def test_cells_keep_the_digest_of_the_page_of_rules() -> None:
    page = (ROOT / "docs/verdicts.md").read_bytes()
    assert hashlib.blake2b(page, digest_size=8).hexdigest() == RULES


@pytest.mark.parametrize(
    ("values", "held"),
    [
        ((1.0, 1.1, 0.9), Held.HELD),
        ((-1.0, -1.1, -0.9), Held.NOT_HELD),
        ((1.0, 3.0, -0.5), Held.UNDECIDED),
        ((1.0, 1.0), Held.UNDECIDED),
        ((0.0, 0.0, 0.0), Held.UNDECIDED),
    ],
)
def test_the_interval_of_three_samples_or_more_decides(
    values: tuple[float, ...], held: Held
) -> None:
    assert by_samples("It is so.", {"": samples(*values)}).held is held


def test_a_difference_of_rounding_decides_nothing() -> None:
    values = np.full(3, 0.1 + 0.2)
    assert by_samples("It is more than 0.3.", {"": values}, low=0.3).held is Held.UNDECIDED


@pytest.mark.parametrize(
    ("mean", "held"), [(0.0, Held.HELD), (2.9, Held.UNDECIDED), (9.0, Held.NOT_HELD)]
)
def test_an_equivalence_is_held_within_its_band_alone(mean: float, held: Held) -> None:
    values = samples(mean - 0.1, mean, mean + 0.1)
    for sign in (1, -1):
        assert by_samples("They are alike.", {"": sign * values}, low=-3.0, high=3.0).held is held


def test_every_part_must_be_for_a_claim_and_one_against_it_is_enough() -> None:
    good, bad, wide = samples(5.0, 5.1, 4.9), samples(-5.0, -5.1, -4.9), samples(9.0, -8.0, 1.0)
    assert by_samples("Each.", {"a": good, "b": good}).held is Held.HELD
    assert by_samples("Each.", {"a": good, "b": bad}).held is Held.NOT_HELD
    assert by_samples("Each.", {"a": good, "b": wide}).held is Held.UNDECIDED
    one = by_samples("Each.", {"a": good}, censored=["b", "c"])
    assert one.held is Held.UNDECIDED
    assert one.reason == "a 5 [4.75, 5.25]; 2 censored: b (+ 1)"
    assert by_samples("Each.", {"a": bad}, censored=["b"]).held is Held.NOT_HELD


def test_more_parts_make_it_harder_to_refute_a_claim() -> None:
    bad, good = samples(-5.0, -4.0, -3.0, -6.0), samples(5.0, 5.1, 4.9, 5.0)
    alone = by_samples("It.", {"a": bad})
    among = by_samples("Each.", {"a": bad, **{str(n): good for n in range(9)}})
    assert alone.chance is not None
    assert among.chance == pytest.approx(10 * alone.chance, rel=1e-6)
    assert (alone.held, among.held) == (Held.NOT_HELD, Held.UNDECIDED)


def test_holms_correction_takes_the_claims_of_one_source_together() -> None:
    strong, weak = samples(5.0, 5.01, 4.99), samples(5.0, 3.1, 6.9)
    results = [by_samples(f"{n}", {"": values}) for n, values in enumerate((strong, weak, weak))]
    assert [each.held for each in results] == [Held.HELD] * 3
    exact = judge("Exact.", [], grounds="all", strength=EXACT)
    after = corrected({"alone": [results[1], exact], "together": [*results, exact]})
    assert [each.held for each in after["alone"]] == [Held.HELD] * 2
    held = [each.held for each in after["together"]]
    assert held == [Held.HELD, Held.UNDECIDED, Held.UNDECIDED, Held.HELD]
    assert after["together"][1].reason.startswith("held but for Holm's correction: ")


def test_evidence_refutes_what_too_weak_a_test_cannot_hold() -> None:
    weak = Strength("weak", Held.UNDECIDED)
    for against, expected in (([], Held.UNDECIDED), (["it fell", "twice"], Held.NOT_HELD)):
        verdict = judge("It rises.", against, grounds="it rose", strength=weak)
        assert verdict.held is expected
    assert verdict.reason == "it fell (+ 1)"


def test_a_module_without_its_list_of_differences_is_refused() -> None:
    assert differences(["fullrank.algorithms.maddpg"]).startswith("* u_i is a gradient, not the")
    with pytest.raises(AssertionError, match="has no heading"):
        differences(["fullrank_papers.claims"])


def rounded_otherwise(value: Any, draws: np.random.Generator) -> Any:
    """A result whose numbers differ in their last digits, as another processor's would."""
    if isinstance(value, dict):
        return {key: rounded_otherwise(each, draws) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded_otherwise(each, draws) for each in value]
    if isinstance(value, float) and math.isfinite(value):
        return value * (1.0 + 1e-13 * float(draws.uniform(-1, 1)))
    return value


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("coded-maddpg", "standard"),
        ("darl1n", "standard"),
        ("cmarl", "standard"),
        ("dmcaf", "standard"),
        ("multi-gpu", "smoke"),
    ],
)
def test_equal_cells_give_equal_verdicts_however_a_processor_rounds(name: str, scale: str) -> None:
    paper = paper_of(name)
    sizes = paper.scales[scale]
    planned = [cell for cells in paper.planned(sizes).values() for cell in cells]
    results = gather(planned, CellStore(ROOT / "papers" / paper.folder / scale), chosen=())
    draws = np.random.default_rng(0)
    told = []
    for found in (
        results,
        {name: rounded_otherwise(each, draws) for name, each in results.items()},
    ):
        findings = Findings(scale=sizes, results=found, whole=frozenset(paper.parts))
        after = corrected(paper.judged(findings))
        told.append([(each.claim, each.held) for of in after.values() for each in of])
    assert told[0] == told[1]
    assert len(told[0]) > 5


def test_a_cell_of_today_names_the_rules_and_an_older_one_does_not() -> None:
    lines = (ROOT / "papers/003-dmcaf/standard" / CELLS).read_text().splitlines()
    assert {json.loads(line)["rules"] for line in lines} == {RULES}
