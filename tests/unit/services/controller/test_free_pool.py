"""Free collection: what collectors report takes bounded memory, and what is refused is not kept."""

import pytest
from tests.unit.services.controller.builders import NUMERICS, make_config

from fullrank.common.errors import InvalidContribution
from fullrank.training.block_player import PlayTerms, Publication
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.free_pool import KEPT_EPISODES, FreePool
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.roster import Roster
from fullrank_controller.progress import RunProgress

AGENTS = 2


async def playing() -> tuple[FreePool, Member]:
    """A pool with one collector that plays."""
    roster, settings = Roster(), make_config().controller
    roster.numerics = NUMERICS
    pool = FreePool(settings, roster=roster, progress=RunProgress(committed=0), agents=AGENTS)
    member = roster.join("host", now=0.0)
    roster.ready(member, numerics=NUMERICS, stable=True)
    pool.publish(PlayTerms(publication=Publication(version=0, sections={}), env_steps=0))
    return pool, member


def wrote(*lengths: int, **fields: object) -> pb.CollectorMessage:
    count = len(lengths)
    report = {"earned": [1.0] * count * AGENTS, "won": [False] * count, **fields}
    return pb.CollectorMessage(wrote=pb.Wrote(lengths=lengths, **report))  # type: ignore[arg-type]


def kept(pool: FreePool) -> list[int]:
    return [int(length) for report in pool.take_written() for length in report.lengths]


async def test_reports_are_taken_once_in_order() -> None:
    pool, member = await playing()
    pool.take(member, wrote(1, 2))
    pool.take(member, wrote(3))
    assert kept(pool) == [1, 2, 3]
    assert kept(pool) == []
    pool.take(member, wrote(4))
    assert kept(pool) == [4]


async def test_while_no_iteration_begins_the_newest_reports_are_kept() -> None:
    pool, member = await playing()
    reports, each = 4 * KEPT_EPISODES // 100, 100
    for report in range(reports):
        pool.take(member, wrote(*[report + 1] * each))
    lengths = kept(pool)
    assert len(lengths) == KEPT_EPISODES
    assert lengths == sorted(lengths)
    assert (lengths[0], lengths[-1]) == (reports - KEPT_EPISODES // each + 1, reports)
    assert pool.totals["episodes"] == reports * each


async def test_one_report_of_many_episodes_replaces_all_others() -> None:
    pool, member = await playing()
    pool.take(member, wrote(1))
    pool.take(member, wrote(*[2] * KEPT_EPISODES))
    assert kept(pool) == [2] * KEPT_EPISODES


@pytest.mark.parametrize(
    "message",
    [
        wrote(),
        wrote(1, 0),
        wrote(2**31),
        wrote(1, won=[]),
        wrote(1, earned=[0.0]),
        wrote(1, earned=[0.0, float("nan")]),
    ],
)
async def test_a_report_with_a_wrong_field_is_refused_whole(message: pb.CollectorMessage) -> None:
    pool, member = await playing()
    with pytest.raises(InvalidContribution, match="wrote"):
        pool.take(member, message)
    assert kept(pool) == []
    assert not pool.totals["episodes"]
