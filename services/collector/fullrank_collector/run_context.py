"""A collector's context of a run: configuration, player with a limit on time, and probe."""

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from fullrank.common.deadlines import limit_s
from fullrank.common.errors import ConfigError, Stuck
from fullrank.common.types import RunTerm
from fullrank.config.elsewhere import device_kind, from_elsewhere
from fullrank.config.tree import ControllerSettings, EnvironmentSettings, RunConfig
from fullrank.config.trust import check_trusted, remember
from fullrank.environments.base import is_adapted
from fullrank.net.codec import decode_environment
from fullrank.net.messages import equal_setup
from fullrank.training.block_player import BlockPlayer, PlayedBlock, PlayTerms
from fullrank.training.blocks import BlockKey
from fullrank.training.container import Container
from fullrank.training.heads import Heads
from fullrank.training.worker import Probe, probe_of
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring.containers import container_of, head_size_of
from fullrank.wiring.plugins import algorithm_of
from fullrank.wiring.training import block_player_of

FACTOR = 20.0
"""Multiple of its usual duration after which a block counts as hanging, as phases of the
controller do."""
RECENT = 200
"""Number of blocks whose durations give the limit."""
ENDING_S = 30.0
"""Longest wait for the end of a block whose environments' processes have been killed."""


class TimedPlayer:
    """Plays blocks on another thread, for as long as blocks take.

    Args:
        player: Plays the blocks.
        pool: Executor with the one playing thread.
        settings: Least and greatest limits.
    """

    def __init__(
        self, player: BlockPlayer, *, pool: ThreadPoolExecutor, settings: ControllerSettings
    ) -> None:
        self._player, self._pool, self._settings = player, pool, settings
        self._durations_s: deque[float] = deque(maxlen=RECENT)

    async def play(self, key: BlockKey, play: PlayTerms) -> PlayedBlock:
        """Play a block.

        Raises:
            EnvironmentFailed: The environment raised, or hung in a process of its own, which was
                ended.
            Stuck: The environment hangs on the playing thread, which is lost.
        """
        loop, began_at = asyncio.get_running_loop(), time.monotonic()
        playing = loop.run_in_executor(self._pool, self._player.play, key, play)
        playing.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # after a stream
        longest_s = limit_s(
            self._durations_s,
            factor=FACTOR,
            least_s=self._settings.deadline_s,
            unmeasured_s=self._settings.stuck_after_s,
        )
        await asyncio.wait({playing}, timeout=longest_s)
        if not playing.done() and self._player.interrupt(f"no answer for {longest_s:.1f} s"):
            await asyncio.wait({playing}, timeout=ENDING_S)
        if not playing.done():
            doing = f"; {said}" if (said := self._player.doing()) else ""
            raise Stuck(f"{self._player.name(key)}: it hangs for {longest_s:.1f} s{doing}")
        self._durations_s.append(time.monotonic() - began_at)
        return playing.result()


class CollectorContext:
    """Context of a run, built once and kept while the collector reconnects to the same run.

    Args:
        welcome: The controller's answer to the collector's Hello.
        own: Configuration of this process, which alone may name code that is not registered.

    Raises:
        ConfigError: The run's environment is neither registered nor this process's own.
    """

    def __init__(self, welcome: pb.Welcome, own: RunConfig) -> None:
        elsewhere = from_elsewhere(welcome.configuration, own=own)
        device = own.compute.device
        device = device_kind(elsewhere) if device == "auto" else device
        compute = replace(elsewhere.config.compute, device=device)
        self.config: RunConfig = replace(elsewhere.config, compute=compute)
        _check_trusted(self.config.environment, own.environment)
        self._welcome = welcome
        self.run_term = RunTerm(welcome.run, welcome.term, welcome.instance)
        """Term served last; it rises when a new controller takes over the run."""
        self.spec = decode_environment(self.config, welcome)
        algorithm = algorithm_of(self.config, self.spec)
        self.problem = algorithm.problem
        self.probe: Probe = probe_of(algorithm, self.spec.agents, seed=self.config.seed)
        self.fingerprint = algorithm.gradients.fingerprint()
        processes = self.config.collectors.processes
        self.player = block_player_of(self.config, self.spec, processes=processes)
        self.heads: Heads | None = None
        """Heads of all containers; None where collectors are none."""
        if self.config.collectors.containers:
            self.heads = Heads(head_size_of(self.config, self.spec))
        self._container: Container | None = None
        self.head_lost = ""
        """Why the container began anew, until the controller is told; empty if it did not."""

    @property
    def number(self) -> int | None:
        """Return the number of the container; None before it has one."""
        return self._container.number if self._container is not None else None

    def container(self, number: int) -> Container | None:
        """Return the container of a number, which goes on unless its head is no use for that.

        One that begins takes the newest head of its number; None where collectors are none.
        """
        if self.heads is None:
            return None
        held = self._container
        if held is None or held.number != number or not held.is_sound:
            self._container = container_of(self.config, self.spec, number=number, heads=self.heads)
        return self._container

    def serves(self, welcome: pb.Welcome) -> bool:
        """Return whether this is the context of the run that ``welcome`` names."""
        return self.run_term.run == welcome.run and equal_setup(self._welcome, welcome)

    def close(self) -> None:
        """Close the environments."""
        self.player.close()


def _check_trusted(run: EnvironmentSettings, own: EnvironmentSettings) -> None:
    """Refuse to import code that only the controller's configuration names (ADR 46)."""
    if run.name == own.name and _call(run) == _call(own):
        remember(own)
        return
    try:
        check_trusted(run, origin="the controller")
    except ConfigError:
        raise ConfigError(
            f"the run's environment {run.name} imports code that this collector's configuration "
            "does not name; start it with the run's table [environment]"
        ) from None


def _call(settings: EnvironmentSettings) -> Mapping[str, Any]:
    """Return the parameters that name the imported and called code."""
    if not is_adapted(settings.name):
        return {}
    if ":" in settings.name:
        return settings.params
    names = ("factory", "id", "arguments")
    return {name: settings.params[name] for name in names if settings.params.get(name)}
