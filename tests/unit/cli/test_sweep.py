"""The sweep: lower bounds hold, and each panel varies the quantity on its axis."""

from collections.abc import Iterator

from fullrank.cli.sweep import DELAYS, LEARNERS, draw, sweep
from fullrank.codes import Code, make_code
from fullrank.planning.cluster import Cluster
from fullrank.planning.costs import Payload
from fullrank.stragglers import FixedK

PAYLOAD = Payload(
    section_sizes=(1000,) * 4, needs=lambda unit: (unit,), vector_size=500, batch_entries=10
)


def codes_for(learners: int) -> Iterator[tuple[str, Code]]:
    for name in ("uncoded", "replication"):
        yield name, make_code(name, rows=learners, units=4)


def test_no_round_is_shorter_than_its_limits() -> None:
    cluster = Cluster(unit_s=0.01, bandwidth=1e6, replay_bandwidth=1e6, payload=PAYLOAD)
    swept = sweep(
        cluster, codes_for, learners=15, stragglers=FixedK(k=2, delay_s=0.5), iterations=10, seed=0
    )
    assert list(swept) == ["learners", "stragglers", "delay, seconds"]
    learners, stragglers, delays = swept.values()
    assert sorted(learners["replication"]) == list(LEARNERS)
    assert sorted(stragglers["uncoded"]) == list(range(8))
    assert sorted(delays["uncoded"]) == [0.5 * factor for factor in DELAYS]
    for curves in swept.values():
        for points in curves.values():
            assert all(p.round_s >= max(p.link_s, p.decode_s) > 0 for p in points.values())
    assert learners["replication"][4096].link_s > 100 * learners["replication"][32].link_s
    assert len(draw(swept, title="").axes) == 3


def test_a_limit_of_noise_holds_in_a_sweep_too() -> None:
    swept = sweep(
        Cluster(),
        lambda learners: [("mds", make_code("mds", rows=min(learners, 15), units=4))],
        learners=15,
        stragglers=FixedK(k=2, delay_s=0.5),
        iterations=1,
        seed=0,
        max_variance=0.0,
    )
    waits = swept["stragglers"]["mds"]
    assert waits[0].round_s == 0.0
    assert all(waits[k].round_s == 0.5 for k in range(1, 8))
