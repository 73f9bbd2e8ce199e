"""Playing with a limit on time, measured from earlier blocks."""

import asyncio
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from fullrank.common.deadlines import limit_s
from fullrank.common.errors import Stuck
from fullrank.config.tree import ControllerSettings
from fullrank.training.block_player import BlockPlayer, PlayedBlock, PlayTerms
from fullrank.training.blocks import BlockKey

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
