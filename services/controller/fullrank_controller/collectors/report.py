"""Collectors as the ports of a run show them."""

from collections.abc import Iterator

from fullrank.rpc.prometheus import Family, counter, gauge
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.hands import Hand
from fullrank_controller.collectors.pool import CollectorPool
from fullrank_controller.membership.member import Member


def collector_metrics(pool: CollectorPool, *, version: int) -> Iterator[Family]:
    """The current state of the collectors.

    Args:
        pool: Attached collectors.
        version: Version of the current parameters.
    """
    lags = [version - hand.version for hand in pool.hands.values() if hand.version is not None]
    yield gauge("collectors_attached", "Collectors attached.", len(pool.roster.members))
    yield gauge("collectors_eligible", "Collectors that may be dealt blocks.", len(pool.hands))
    yield gauge("collector_lag", "Largest lag of a collector, in updates.", max(lags, default=0))
    yield gauge("blocks_waiting", "Blocks without an answer.", pool.waiting)
    yield counter("blocks_played", "Blocks that collectors have played.", pool.played)
    yield counter("blocks_dealt", "Blocks dealt, again when overdue.", pool.dealt)


def collector_status(
    pool: CollectorPool, member: Member, *, version: int, now: float
) -> pb.CollectorStatus:
    """The status of an attached collector.

    Args:
        pool: Attached collectors.
        member: One of them.
        version: Version of the current parameters.
        now: Loop time.
    """
    hand = pool.hands.get(member) or Hand()
    block = hand.block
    return pb.CollectorStatus(
        collector=member.learner,
        host=member.host,
        fingerprint=member.numerics.fingerprint if member.numerics is not None else "",
        spare=member.objection(pool.roster.numerics),
        blocks=hand.blocks,
        playing=block is not None,
        iteration=0 if block is None else block.iteration,
        block=0 if block is None else block.block,
        playing_s=0.0 if block is None else now - hand.dealt_at,
        lag=0 if hand.version is None else max(0, version - hand.version),
        silent_s=now - member.heard_at,
        failed=hand.failed,
    )
