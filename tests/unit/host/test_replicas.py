"""Replicas that a signal kills are started again, and others are not."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from tests.waiting import WAIT_S

from fullrank.common.errors import Stuck
from fullrank.host.children import FIRST_PAUSE_S, LASTING_S, LONGEST_PAUSE_S, Pauses

SUPERVISED = """
import logging, os, signal, sys, time
from pathlib import Path
from fullrank.config import load
from fullrank.host import children
from fullrank.host.process import Launch

children.FIRST_PAUSE_S = 0.01
deaths, kind = Path(sys.argv[1]), sys.argv[2]

def replica(launch, number):
    with deaths.open("a") as file:
        file.write(f"{number}\\n")
    if number or deaths.read_text().split().count("0") > 3:
        return 0
    if kind == "signal":
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
    return int(kind)

launch = Launch(resolved=load(environ={}), replicas=2)
sys.exit(children.run_replicas(launch, replica, say=logging.warning, clock=time.monotonic))
"""


def lives(tmp_path: Path, *, kind: str) -> tuple[list[str], int, str]:
    """Numbers of the replicas that were started, the exit code, and the log."""
    deaths = tmp_path / "deaths"
    ended = subprocess.run(
        [sys.executable, "-c", SUPERVISED, str(deaths), kind],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env=os.environ,
    )
    return sorted(deaths.read_text().split()), ended.returncode, ended.stderr


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["signal", str(Stuck.exit_code)])
def test_a_replica_that_is_killed_or_stuck_is_started_again_and_that_is_said(
    tmp_path: Path, kind: str
) -> None:
    numbers, code, said = lives(tmp_path, kind=kind)
    assert numbers == ["0", "0", "0", "0", "1"]
    assert code == 0
    assert said.count("replica_died replica=0") == 3


@pytest.mark.integration
def test_a_replica_that_says_why_it_ends_is_not_started_again(tmp_path: Path) -> None:
    assert lives(tmp_path, kind="3")[:2] == (["0", "1"], 3)


def test_pauses_double_up_to_a_bound_and_begin_anew_after_a_long_life() -> None:
    pauses = Pauses()
    drawn = [pauses.after(0.0) for _ in range(2000)]
    assert drawn[0] == FIRST_PAUSE_S
    assert all(after == min(LONGEST_PAUSE_S, 2 * before) for before, after in pairwise(drawn))
    assert drawn[-1] == LONGEST_PAUSE_S
    assert pauses.after(LASTING_S) == FIRST_PAUSE_S


FLOODED = """
import logging, os, sys, time
from fullrank.config import load
from fullrank.host import children
from fullrank.host.process import Launch, stop_event

async def serve(launch):
    stop = stop_event(launch)
    os.write(1, b"%d\\n" % os.getpid())  # in one piece
    await stop.wait()

def replica(launch, number):
    return children.run_replica(serve(launch))

launch = Launch(resolved=load(environ={}), replicas=2)
sys.exit(children.run_replicas(launch, replica, say=logging.warning, clock=time.monotonic))
"""


@pytest.mark.integration
@pytest.mark.parametrize("flooded", ["supervisor", "replica"])
def test_signals_that_come_faster_than_they_are_handled_end_a_process_well(flooded: str) -> None:
    """A handler in Python would be interrupted before its first line, until recursion fails."""
    with subprocess.Popen(
        [sys.executable, "-c", FLOODED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as supervisor:
        assert supervisor.stdout is not None
        replicas = [int(supervisor.stdout.readline()) for _ in range(2)]
        process = supervisor.pid if flooded == "supervisor" else replicas[0]
        with suppress(ProcessLookupError):  # the replica has ended
            while supervisor.poll() is None:
                os.kill(process, signal.SIGTERM)
        supervisor.terminate()
        assert supervisor.stderr is not None
        assert (supervisor.wait(WAIT_S), supervisor.stderr.read()) == (0, "")
