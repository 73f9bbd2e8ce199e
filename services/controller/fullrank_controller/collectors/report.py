"""Collectors as the ports of a run show them."""

from collections.abc import Iterator

from fullrank.net.prometheus import Family, counter, gauge
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.block_orders import CollectorWork, unplayed
from fullrank_controller.collectors.free_pool import FreePool
from fullrank_controller.collectors.pool import CollectorPool
from fullrank_controller.membership.member import Member
from fullrank_controller.progress import RunProgress


def collector_metrics(pool: CollectorPool, *, version: int) -> Iterator[Family]:
    """The current state of the collectors, and their totals.

    Args:
        pool: Attached collectors.
        version: Version of the current parameters.
    """
    eligible, totals = pool.eligible, pool.totals
    yield gauge("collectors_attached", "Collectors attached.", len(pool.roster.members))
    yield gauge("collectors_eligible", "Collectors that may be assigned blocks.", len(eligible))
    yield gauge(
        "collector_lag",
        "Lag of each collector, in updates.",
        {str(each.learner): float(_lag(work, version)) for each, work in eligible.items()},
        label="collector",
    )
    yield gauge(
        "collector_block_seconds",
        "Mean duration of a block of each collector.",
        {str(each.learner): _block_s(work) for each, work in eligible.items()},
        label="collector",
    )
    yield gauge("blocks_waiting", "Blocks without an answer.", len(pool.scheduler.waiting))
    yield counter("blocks_played", "Blocks that collectors have played.", totals.played)
    yield counter("blocks_assigned", "Blocks assigned, again when overdue.", totals.assigned)
    yield counter("blocks_reassigned", "Overdue blocks reassigned.", totals.reassigned)
    yield counter("blocks_lost", "Blocks whose collector was lost.", totals.lost)
    yield counter("blocks_failed", "Blocks whose environment raised.", totals.failed)
    yield counter("collectors_playing_seconds", "Time of playing.", totals.playing_s)
    yield counter("collectors_idle_seconds", "Time of collectors without blocks.", totals.idle_s)
    yield counter("blocks_awaited_seconds", "Time of the run without blocks.", totals.awaited_s)


def _lag(work: CollectorWork, version: int) -> int:
    return 0 if work.version is None else max(0, version - work.version)


def _block_s(work: CollectorWork) -> float:
    return work.playing_s / work.blocks if work.blocks else 0.0


def blocks_status(pool: CollectorPool) -> pb.BlocksStatus:
    """Totals over all collectors."""
    totals = pool.totals
    return pb.BlocksStatus(
        played=totals.played,
        reassigned=totals.reassigned,
        lost=totals.lost,
        failed=totals.failed,
        waiting=len(pool.scheduler.waiting),
        block_s=totals.playing_s / totals.played if totals.played else 0.0,
        awaited_s=totals.awaited_s,
    )


def player_metrics(pool: FreePool, *, version: int) -> Iterator[Family]:
    """The current state of collectors that play freely, and totals of their episodes.

    Args:
        pool: Attached collectors.
        version: Version of the current parameters.
    """
    yield gauge("collectors_attached", "Collectors attached.", len(pool.roster.members))
    yield gauge("collectors_eligible", "Collectors that play.", len(pool.players))
    yield gauge(
        "collector_lag",
        "Lag of each collector, in updates.",
        {
            str(each.learner): float(max(0, version - player.version))
            for each, player in pool.players.items()
        },
        label="collector",
    )
    for name, text in (
        ("episodes", "Episodes that collectors have written."),
        ("settled", "Episodes that replay has stored or refused."),
        ("stale", "Episodes refused because their parameters were too old."),
        ("invalid", "Episodes refused as invalid."),
    ):
        yield counter(f"collector_{name}", text, pool.totals[name])
    if pool.heads is not None:
        yield from _container_metrics(pool)


def _container_metrics(pool: FreePool) -> Iterator[Family]:
    """The current state of the containers, and totals of what they handed over."""
    handed_over, published = pool.totals["handed_over"], pool.totals["heads"]
    yield counter("container_handed_over", "Episodes handed over by containers.", handed_over)
    yield counter("container_heads", "Heads that containers have published.", published)
    statuses = {each.learner: player.container for each, player in pool.players.items()}
    for name, text in (
        ("updates", "Updates of each container's head."),
        ("published", "Updates of each container's published head."),
        ("divergence", "Divergence of each from all."),
    ):
        values = {str(number): float(getattr(each, name)) for number, each in statuses.items()}
        yield gauge(f"container_{name}", text, values, label="container")


def player_statuses(pool: FreePool, *, version: int, now: float) -> Iterator[pb.CollectorStatus]:
    """The status of each collector that plays freely.

    Args:
        pool: Attached collectors.
        version: Version of the current parameters.
        now: Loop time.
    """
    for member in pool.roster.members:
        player = pool.players.get(member) or pool.beginner(member, version=version, now=now)
        yield pb.CollectorStatus(
            collector=member.learner,
            host=member.host,
            fingerprint=member.numerics.fingerprint if member.numerics is not None else "",
            blocks=player.blocks,
            playing=member in pool.players,
            playing_s=now - player.heard_at,
            lag=max(0, version - player.version),
            silent_s=now - member.heard_at,
            failed=player.failed,
            settled=player.settled,
            stale=player.stale,
            invalid=player.invalid,
            container=player.container if pool.heads is not None else None,
        )


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
    work = pool.eligible.get(member) or CollectorWork()
    block, measured_s = work.block, work.playing_s + work.idle_s
    return pb.CollectorStatus(
        collector=member.learner,
        host=member.host,
        fingerprint=member.numerics.fingerprint if member.numerics is not None else "",
        spare=member.objection(pool.roster.numerics),
        blocks=work.blocks,
        playing=block is not None,
        iteration=0 if block is None else block.iteration,
        block=0 if block is None else block.block,
        playing_s=0.0 if block is None else now - work.assigned_at,
        lag=_lag(work, version),
        silent_s=now - member.heard_at,
        failed=work.failed,
        block_s=_block_s(work),
        idle=work.idle_s / measured_s if measured_s else 0.0,
        reassigned=work.reassigned,
    )


def who_waits(pool: CollectorPool, progress: RunProgress) -> str:
    """One line: the side that waits and the cause; empty once the run is finished."""
    keys = pool.scheduler.waiting
    if progress.finished:
        return ""
    if not keys:
        return (
            f"{len(pool.eligible)} collectors wait for the update of iteration {progress.applied}"
        )
    first, blocks = keys[0], unplayed(keys)
    holders = pool.scheduler.holders(first)
    who = f"collectors {holders}" if holders else "a collector"
    left = pool.lost[first]
    lost = f"; {left} collectors were lost while they played it" if left else ""
    if pool.awaited is None:
        return f"played ahead: {blocks}, with {who}{lost}"
    return f"the run waits for collectors: {blocks}, which waits for {who}{lost}"
