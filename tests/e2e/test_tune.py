"""``fullrank tune`` as users run it: whole runs, killed, resumed, and equal to plain ones."""

import json
from pathlib import Path

import pytest
from tests.e2e.commands import digests, final_state, fullrank, processes_of, settings
from tests.waiting import wait_until

from fullrank.common.failpoints import VARIABLE
from fullrank.runs.halving import FILE

pytestmark = pytest.mark.e2e

RUN = settings("iterations=6", "checkpoint.every=1")


def test_a_killed_tune_goes_on_and_its_run_has_the_bits_of_a_plain_one(tmp_path: Path) -> None:
    tune = tmp_path / "tune"
    words = ("tune", "algorithm.learning_rate=0.01,0.1", "--local", "--run-dir", str(tune), *RUN)
    outcome = fullrank(*words, env={VARIABLE: "journal.synced:2"})
    assert outcome.code == 9, outcome.error
    wait_until(lambda: not processes_of(tune), what="no process is left")
    outcome = fullrank("resume", "--local", str(tune))
    assert (outcome.code, outcome.error) == (0, "")
    facts = json.loads((tune / FILE).read_text())
    assert f"chosen: algorithm.learning_rate = {facts['chosen']}, " in outcome.output
    rate = f"algorithm.learning_rate={facts['chosen']}"
    chosen, plain = tune / rate, tmp_path / "plain"
    assert fullrank("train", "--local", "--run-dir", str(plain), *RUN, "--set", rate).code == 0
    assert digests(chosen) == digests(plain)
    assert final_state(chosen) == final_state(plain)
    assert fullrank("verify", str(chosen)).code == 0
