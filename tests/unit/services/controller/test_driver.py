"""The driver executes the orders of a run so that no effect overtakes what it rests on."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

from tests.unit.services.controller.builders import make_config, make_run

from fullrank.run.orders import TakeCheckpoint
from fullrank_controller.driver import Driver


async def test_a_stopped_run_is_checkpointed_once_nothing_is_played() -> None:
    """The state of environments that are stepped on another thread is that of no iteration."""
    played, saved = asyncio.Event(), []

    async def checkpoint(*, committed: int, head: int) -> None:
        saved.append(committed)

    term = SimpleNamespace(
        config=make_config(),
        run=make_run(),
        training=SimpleNamespace(
            collector=SimpleNamespace(agents=()),
            problem=SimpleNamespace(data=SimpleNamespace(batch_size=1)),
        ),
        directory=SimpleNamespace(caveats=()),
        keep_caveat=None,
        store=SimpleNamespace(checkpoint=checkpoint),
        watchdog=SimpleNamespace(phase=lambda name: nullcontext()),
    )
    pipeline = SimpleNamespace(finish_playing=played.wait)
    driver = Driver(cast(Any, term), cast(Any, pipeline), cast(Any, None))
    checkpointing = asyncio.ensure_future(driver._checkpoint(TakeCheckpoint(5)))
    await asyncio.wait({checkpointing}, timeout=0)
    assert saved == []
    played.set()
    await checkpointing
    assert saved == [5]
