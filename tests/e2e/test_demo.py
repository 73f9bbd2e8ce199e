"""``make demo``: a learner is killed, one is late, one lies, and the bits are the right ones."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
MOMENTS, HALVED = "= 500, 100, 200, 300", "= 250, 50, 100, 150"
"""Number of iterations and moments of what happens, as in the program and half as many."""
BROWSER = """#!/bin/sh
echo "$1" > "$(dirname "$0")/opened"
"""


def test_the_demonstration_ends_equal_with_a_page_and_leaves_no_process(tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(BROWSER)
    browser.chmod(0o755)
    program, shorter = DEMO.read_text(), tmp_path / DEMO.name
    assert MOMENTS in program
    shorter.write_text(program.replace(MOMENTS, HALVED))
    environ = {"DISPLAY": ":0", "BROWSER": f"{browser} %s", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(shorter)],
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    *events, people, digests, verdict = done.stdout.splitlines()
    assert verdict == "EQUAL"
    coded, centralised = digests.removeprefix("coded ").split(", centralised ")
    assert len(coded) == 32
    assert coded == centralised
    assert people.startswith("killed: learner 0; late: learner 1, median round ")
    assert people.endswith("caught: learner 2, lying from iteration 150")
    assert len(events) == 3
    assert events[0].endswith(": learner 0 is killed")
    assert events[1].endswith(": a new process takes its place")
    # A row that came too late for its round is no evidence; that of a later iteration is.
    caught = re.match(r"learner 2 is caught: units \[\d\] of iteration (\d+) were wrong", events[2])
    assert caught
    assert 150 <= int(caught[1]) < 250
    assert (tmp_path / "opened").read_text().startswith("http://127.0.0.1:")
    lasting = [each for each in psutil.process_iter() if str(tmp_path) in " ".join(_words(each))]
    assert lasting == []


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
