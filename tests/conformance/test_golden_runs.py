"""Recorded update digests: no change of the code changes a bit of a run that it does not name.

A record holds for the facts that decide bits: the numeric fingerprint, NumPy's version and its
instructions. Elsewhere a run has none, and the tests that compare hosts and codes with each other
stand alone. ``python -m tests.conformance.test_golden_runs`` records what is missing here; a record
that a change must renew is deleted first, and the change says why.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.config import RunConfig, load
from fullrank.local import LocalRun

RECORDS = Path(__file__).parents[1] / "golden" / "run_digests"
SMALL: dict[str, Any] = {
    "iterations": 5,
    "environment.copies": 2,
    "collect.steps": 13,
    "collect.warmup": 120,
    "collect.warmup_copies": 4,
    "algorithm.hidden": 18,
    "compute.threads": 1,
}
ACTORS: dict[str, Any] = SMALL | {"algorithm.batch_size": 37}
TEAMS: dict[str, Any] = SMALL | {
    "environment.agents": 0,
    "algorithm.batch_size": 10,
    "algorithm.micro_batches": 3,
    "algorithm.target_every": 2,
    "algorithm.exploration_steps": 400,
}
KEYED: dict[str, Any] = {"collect.mode": "keyed", "collect.block": 2}
ONCE: dict[str, Any] = SMALL | {
    "iterations": 8,
    "environment.copies": 4,
    "algorithm.batch_size": 2,
    "algorithm.epochs": 2,
    "algorithm.micro_batches": 2,
}
FOOD: dict[str, Any] = {"environment.name": "food_collection", "environment.agents": 3}
RUNS: dict[str, dict[str, Any]] = {
    "maddpg": ACTORS,
    "maddpg-lag": ACTORS | {"collect.lag": 1},
    "maddpg-keyed": ACTORS | KEYED,
    "maddpg-wide": ACTORS | {"environment.agents": 8, "algorithm.hidden": 64},
    "maddpg-sides": ACTORS
    | {
        "environment.name": "predator_prey",
        "environment.agents": 3,
        "algorithm.ddpg_sides": ["predator"],
    },
    "maddpg-unlike": ACTORS | {"environment.name": "speaker_listener", "environment.agents": 2},
    "maddpg-shared": ACTORS
    | {
        "environment.name": "predator_prey",
        "environment.agents": 3,
        "algorithm.micro_batches": 2,
        "algorithm.share": "side",
    },
    "mfac": ACTORS | {"algorithm.name": "mfac"},
    "darl1n": ACTORS | FOOD | {"algorithm.name": "darl1n"},
    "darl1n-independent": ACTORS
    | FOOD
    | {"algorithm.name": "darl1n", "algorithm.data": "independent"},
    **{
        name: TEAMS | {"algorithm.name": name, "environment.name": "switch_riddle"}
        for name in ("qmix", "vdn", "iql", "qplex")
    },
    "pqn": ONCE
    | {
        "algorithm.name": "pqn",
        "algorithm.anneal_iterations": 20,
        "environment.name": "cooperative_navigation",
        "collect.lag": 1,
    },
    "pqn-recurrent": ONCE
    | KEYED
    | {
        "algorithm.name": "pqn",
        "algorithm.mixer": "monotonic",
        "algorithm.recurrent": True,
        "environment.name": "smac_lite",
        "environment.agents": 0,
    },
    "masac": ACTORS | KEYED | {"algorithm.name": "masac", "algorithm.micro_batches": 2},
    "isac": ACTORS | FOOD | {"algorithm.name": "isac", "algorithm.share": "all"},
    "coma": SMALL
    | {
        "iterations": 8,
        "environment.copies": 4,
        "environment.name": "switch_riddle",
        "environment.agents": 0,
        "algorithm.name": "coma",
        "algorithm.batch_size": 2,
        "algorithm.micro_batches": 2,
        "algorithm.recurrent": True,
        "algorithm.target_every": 3,
    },
    "ippo": ONCE
    | {
        "algorithm.name": "ippo",
        "algorithm.time_limit_bootstrap": True,
        "algorithm.share": "side",
        "environment.name": "predator_prey",
        "environment.agents": 3,
    },
    "mappo": ONCE
    | KEYED
    | {
        "algorithm.name": "mappo",
        "algorithm.time_limit_bootstrap": True,
        "algorithm.anneal_iterations": 20,
        "environment.name": "smac_lite",
        "environment.agents": 0,
        "collect.lag": 1,
    },
    "qmix-apart": TEAMS
    | {"algorithm.name": "qmix", "environment.name": "switch_riddle", "algorithm.share": "none"},
    "qmix-battle": TEAMS | {"algorithm.name": "qmix", "environment.name": "smac_lite"},
    "qmix-keyed": TEAMS
    | KEYED
    | {"algorithm.name": "qmix", "environment.name": "two_step_game", "collect.lag": 1},
}


def config(name: str) -> RunConfig:
    return load(options=RUNS[name]).check().config


def place(run: LocalRun) -> str:
    """The facts that decide the bits of a run, in a few letters."""
    simd = np.show_config(mode="dicts")["SIMD Extensions"]
    facts = (run.training.algorithm.gradients.fingerprint(), np.__version__, str(simd))
    return hashlib.blake2b("; ".join(facts).encode(), digest_size=8).hexdigest()


def trained(run: LocalRun) -> list[str]:
    """Update digests of all iterations, then that of all parameters."""
    digests = [iteration.update_digest for iteration in run]
    run.training.collector.close()
    return [*digests, run.parameter_digest()]


def records(name: str) -> dict[str, list[str]]:
    path = RECORDS / f"{name}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_has_the_bits_of_its_record(name: str) -> None:
    coded = config(name).algorithm.params.get("data") == "independent"
    run = LocalRun(config(name), coded=coded)
    recorded = records(name).get(place(run))
    if recorded is None:
        pytest.skip("no record of this processor, torch and NumPy")
    assert trained(run) == recorded


def record() -> None:
    """Add the runs of this place that have no record."""
    for name in RUNS:
        coded = config(name).algorithm.params.get("data") == "independent"
        run, known = LocalRun(config(name), coded=coded), records(name)
        if place(run) not in known:
            known[place(run)] = trained(run)
            text = json.dumps(known, indent=1, sort_keys=True)
            (RECORDS / f"{name}.json").write_text(f"{text}\n")


if __name__ == "__main__":
    record()
