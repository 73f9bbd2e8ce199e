"""A pool of collectors that play freely, and their reports."""

import asyncio
from typing import Any

import numpy as np
from tests.unit.services.controller.builders import NUMERICS, make_config, make_run

from fullrank.replay.staging import rows_digest
from fullrank.runs.events import EventLog
from fullrank.training.block_player import PlayTerms, Publication
from fullrank.training.blocks import BlockKey, FreePlan
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.free_pool import FreePool
from fullrank_controller.collectors.head_store import HeadStore
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.roster import Roster
from fullrank_controller.progress import RunProgress

AGENTS = 2
TERM = 2
KEY = BlockKey(TERM, 0)


def terms(version: int) -> PlayTerms:
    return PlayTerms(publication=Publication(version=version, sections={}), env_steps=0)


def make_pool(heads: HeadStore | None = None, *, block: int = 1000) -> FreePool:
    """A pool whose blocks are of this many episodes."""
    return FreePool(
        plan=FreePlan(2**48, block),
        settings=make_config().controller,
        roster=Roster(role="collector"),
        progress=RunProgress(committed=0),
        event_log=EventLog(),
        identity=make_run().identity,
        agents=AGENTS,
        heads=heads,
    )


def joined(pool: FreePool, *, process: bytes = b"") -> Member:
    """A collector that may play."""
    member = pool.roster.join("host", now=0.0, process=process)
    pool.roster.ready(member, numerics=NUMERICS, stable=True)
    pool.admit(member)
    return member


def played(key: BlockKey, *lengths: int, **fields: Any) -> pb.CollectorMessage:
    """Report a block of episodes of these lengths, whose transitions have an entry."""
    facts: dict[str, Any] = {
        "rows": sum(lengths),
        "earned": [1.0] * (len(lengths) * AGENTS),
        "won": [False] * len(lengths),
        "lengths": lengths,
        "digest": rows_digest(np.zeros((sum(lengths), 1), np.float32)),
        "staged": True,
    }
    block = pb.Played(iteration=key.iteration, block=key.block, **facts | fields)
    return pb.CollectorMessage(played=block)


async def settle() -> None:
    """Let all tasks go on that can."""
    for _ in range(20):
        await asyncio.sleep(0)
