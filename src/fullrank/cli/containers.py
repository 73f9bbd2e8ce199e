"""What runs in containers share: the commands of their places, and what a controller answers.

A place is asked by its own command, ``docker`` or ``kubectl``, and keeps what there is to know.
While its controller answers, a run speaks for itself. Queues, quotas, gangs and retries are the
platform's.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from fullrank.cli.objects import INTERRUPTED, Condition, State, by_ending
from fullrank.common.errors import DeadlinePassed, FullrankError, Malformed, ServiceLost
from fullrank.common.foreign import brief, parse_json
from fullrank.runs.ending import ending_in
from fullrank.runs.identity import IDENTITY

RUN_DIR = "/var/lib/fullrank/run"
"""Directory of the run in a controller's container."""
ASK = ("fullrank", "run", "status", "127.0.0.1:50053", "--json", "--certificates")
"""Words by which a controller's container asks its own monitor; certificates follow."""
CERTIFICATES = "/var/lib/fullrank/certificates"
STORE = "FULLRANK__STORE__URL"
"""Variable with the URL of a run's store."""
CALL_S = 60.0
"""Longest time for an answer, on a busy host too."""
READ_S = 10.0
"""Longest time to read a file in a container, within the time that a place has to answer."""
TOLD = (ServiceLost.exit_code, INTERRUPTED, 143)
"""Exit codes of a controller that was told to stop: its own ones, and that of SIGTERM."""
FINAL = frozenset(kind.exit_code for kind in FullrankError.__subclasses__() if kind.final)
"""Exit codes that a restart does not cure."""
GOES_ON = "stopped, with a checkpoint; `fullrank run resume %s` goes on"


def call(
    *words: str,
    env: Mapping[str, str] | None = None,
    shown: bool = False,
    within_s: float = CALL_S,
) -> str:
    """Run a command of a place; returns its output, unless that is shown.

    Raises:
        ServiceLost: There is no such command, or it fails.
        DeadlinePassed: It does not answer.
    """
    if shutil.which(words[0]) is None:
        raise ServiceLost(f"there is no {words[0]} on PATH; install it, or choose --on host")
    try:
        ran = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=not shown,
            text=True,
            errors="replace",
            timeout=None if shown else within_s,
            env={**os.environ, **(env or {})},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DeadlinePassed(f"{words[0]} does not answer within {within_s:.0f} s") from None
    if ran.returncode:
        said = (ran.stderr or "").strip().splitlines() or [f"exit code {ran.returncode}"]
        raise ServiceLost(f"`{words[0]}`: {brief(said[-1], limit=500)}")
    return ran.stdout or ""


@contextmanager
def understood(program: str) -> Iterator[None]:
    """Read what a program of a place answers.

    Raises:
        ServiceLost: It is no JSON, or lacks what is looked for.
    """
    try:
        yield
    except (Malformed, LookupError, TypeError, ValueError) as error:
        raise ServiceLost(
            f"{program} answers what is not understood: {brief(repr(error))}"
        ) from None


def answer(*inside: str) -> Condition:
    """What a controller says of its run, asked in its container.

    Args:
        *inside: The command by which another one is run in the container.

    Raises:
        ServiceLost: It does not answer.
    """
    said = call(*inside, *ASK, CERTIFICATES)
    with understood("its controller"):
        facts = parse_json(said, origin="the answer")
        code = None if facts["exit_code"] is None else int(facts["exit_code"])
        return Condition(State(facts["state"]), brief(str(facts["reason"]), limit=1000), code)


def silent(*inside: str, why: str) -> Condition:
    """The condition of a run whose controller has answered before, and does not now.

    Args:
        *inside: The command by which another one is run in the container.
        why: What has become of the question.
    """
    with suppress(ServiceLost):  # it has ended, and its process has not exited yet
        text = call(*inside, "cat", f"{RUN_DIR}/{IDENTITY}", within_s=READ_S)
        if (ending := ending_in(text)) is not None:
            return by_ending(ending)
    return Condition(State.STALLED, why)


def last_line(*words: str) -> str:
    """The message of the last line of a log, which a command prints."""
    with suppress(ServiceLost):
        lines = call(*words).strip().splitlines() or [""]
        with suppress(ValueError, KeyError, TypeError):
            return brief(str(json.loads(lines[-1])["message"]), limit=500)
        return brief(lines[-1], limit=500)
    return ""


def store_of(described: object) -> str:
    """URL of the store in a description of containers; empty without one."""
    url = re.search(rf'{STORE}(?:=|", "value": ")([^"]+)"', json.dumps(described))
    return "" if url is None else url[1]
