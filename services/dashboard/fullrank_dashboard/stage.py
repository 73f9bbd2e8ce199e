"""Stage of a run: an episode of its newest policies, on demand.

``fullrank render`` plays it in a process of its own, because the dashboard imports no torch: one at
a time over all runs, with low priority, and seldom.
"""

import asyncio
import logging
import os
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from fullrank.common.errors import FullrankError, NotFound, ServiceLost, of_exit_code
from fullrank.common.foreign import brief, read_regular
from fullrank.config.toml import read_config
from fullrank.environments.base import is_adapted
from fullrank.host.run_directory import is_address
from fullrank.runs.identity import CHECKPOINTS
from fullrank_dashboard.view import RunView

PAUSE_S = 20.0
"""Shortest pause between two episodes of a run, seconds."""
LONGEST_S = 300.0
"""Time after which a process that plays is ended, seconds."""
MOST_BYTES = 2**23
"""Largest episode."""
NICE = 5
"""Niceness of the processes that play."""


log = logging.getLogger(__name__)


class Stage:
    """Plays what a page asks for.

    Args:
        run: The run, as given to the dashboard.
        view: Told of the episode.
        turn: Held while a process plays.

    Attributes:
        episode: The newest episode, as ``fullrank render`` writes it; empty before the first.
    """

    def __init__(self, run: str, view: RunView, turn: asyncio.Lock) -> None:
        self._run, self._view, self._turn = run, view, turn
        self._asked = asyncio.Event()
        self._played = -1
        self.episode = b""

    def ask(self) -> None:
        """Ask for an episode of the newest policies, unless the last one was of these."""
        self._asked.set()

    async def keep(self) -> NoReturn:
        """Play whenever that is asked for; the view is told why it is not possible."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                async with self._turn:
                    await self._play()
            except Exception as error:  # it ends neither this run's curve nor another's
                if not isinstance(error, FullrankError | ImportError):
                    log.exception("cannot_be_played run=%s", self._run)
                self._view.staged(problem=brief(str(error), limit=400))
            self._view.staged(busy=False)
            await asyncio.sleep(PAUSE_S)

    async def _play(self) -> None:
        iteration = await asyncio.to_thread(self._newest)
        if iteration == self._played:
            return
        self._view.staged(busy=True, problem="")
        with tempfile.TemporaryDirectory(prefix="fullrank-") as scratch:
            drawn = Path(scratch, "episode.json")
            await fullrank("render", "--output", str(drawn), "--", self._run)
            self.episode = read_regular(drawn, MOST_BYTES)
        self._played = iteration
        self._view.staged(played=iteration)

    def _newest(self) -> int:
        """Iteration of the newest policies that this machine may play.

        Raises:
            FullrankError: There are none.
            ImportError: Here is no more than pages need.
        """
        from fullrank.runs.checkpoint import read_manifest, saved  # safetensors, for arrays

        if is_address(self._run):
            raise NotFound("episodes are played where the run's directory is: name the directory")
        config = read_config(Path(self._run))
        if is_adapted(config.environment.name):
            raise NotFound("environments of other packages cannot be drawn")
        for path in saved(Path(self._run) / CHECKPOINTS)[:1]:
            return int(read_manifest(path)["iteration"])
        raise NotFound(f"the first policies are saved after {config.checkpoint.every} iterations")


async def fullrank(*arguments: str) -> None:
    """Run a command of ``fullrank`` to its end.

    Raises:
        FullrankError: It failed, or took too long.
    """
    # -P: no module of the working directory, which may be a stranger's, takes the place of another.
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "fullrank",
        *arguments,
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
    )
    try:
        with suppress(ProcessLookupError):  # it has ended, and says why below
            os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
        async with asyncio.timeout(LONGEST_S):
            _, errors = await process.communicate()
    except TimeoutError:
        raise ServiceLost(f"fullrank {arguments[0]} took more than {LONGEST_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = errors.decode(errors="replace").splitlines()
        said = [line for line in lines if line.startswith("fullrank: ")] or ["it failed"]
        raise of_exit_code(process.returncode, said[-1].removeprefix("fullrank: "))
