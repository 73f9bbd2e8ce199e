import numpy as np
import pytest

from fullrank.planning.candidates import TICKS, candidates, forecast
from fullrank.planning.cluster import Cluster, Links
from fullrank.planning.costs import Payload
from fullrank.planning.delay_model import Scenarios
from fullrank.planning.grace import Grace
from fullrank.planning.history import arrival_times, fit_links
from fullrank.planning.simulation import play
from fullrank.stragglers.additive import Exponential, NoDelay

PAYLOAD = Payload(
    section_sizes=(100, 100, 100, 100, 50),
    needs=lambda unit: (unit, 4),
    vector_size=25,
    batch_entries=10,
)


@pytest.mark.parametrize(
    ("bandwidth", "max_variance", "holders"),
    [(float("inf"), float("inf"), 1), (2e4, float("inf"), 2), (2e4, 1.0, 1)],
)
def test_a_forecast_is_what_the_simulator_plays(
    bandwidth: float, max_variance: float, holders: int
) -> None:
    cluster = Cluster(
        unit_s=0.1, spread=0.3, bandwidth=bandwidth, replay_bandwidth=bandwidth, payload=PAYLOAD
    )
    for candidate in candidates(learners=6, units=4, seed=0):
        code = candidate.code
        played = play(
            cluster,
            code,
            Exponential(),
            iterations=range(30),
            seed=3,
            max_variance=max_variance,
            holders=holders,
        )
        likely = Scenarios(
            weight=np.full(30, 1 / 30),
            unit_s=played.compute_s / code.load,
            delay_s=played.delay_s,
            stopped=np.zeros(6, dtype=np.bool_),
            evidence=30.0,
        )
        links = Links(bandwidth=bandwidth, replay_bandwidth=bandwidth)
        found = forecast(
            candidate, played.moved, likely, links, max_variance=max_variance, holders=holders
        )
        np.testing.assert_allclose(found.ticks / TICKS, played.round_s, rtol=0, atol=1 / TICKS)
        assert found.mean_s == pytest.approx(played.round_s.mean(), abs=1 / TICKS)


@pytest.mark.parametrize("learners", [4, 6])
def test_a_forecast_of_hedged_rounds_is_what_the_simulator_plays(learners: int) -> None:
    """Learner 1 takes ten times as long; with six learners, two of them may hold no unit."""
    cluster = Cluster(unit_s=(0.1, 1.0, *[0.1] * (learners - 2)))
    for candidate in candidates(learners=learners, units=4, seed=0, tolerance=0):
        code = candidate.code
        played = play(cluster, code, NoDelay(), iterations=range(30), seed=3, grace=Grace())
        likely = Scenarios(
            weight=np.full(30, 1 / 30),
            unit_s=np.tile(cluster.unit_s, (30, 1)),
            delay_s=np.zeros((30, learners)),
            stopped=np.zeros(learners, dtype=np.bool_),
            evidence=30.0,
        )
        found = forecast(candidate, played.moved, likely, Links(), hedged=True)
        assert found.label == f"{candidate.label},hedged"
        assert found.ticks[-1] / TICKS == pytest.approx(played.round_s[-1])
        assert found.mean_s < 1.0


def test_the_bandwidth_is_found_from_the_least_overhead() -> None:
    true = Links(bandwidth=3e4, replay_bandwidth=3e4)
    code = candidates(learners=6, units=4, seed=0)[0].code
    moved, busy_s = PAYLOAD.traffic(code.matrix), np.multiply(0.01, code.load, dtype=np.float64)
    overhead_s = (arrival_times(busy_s[None], moved, true)[0] - busy_s).min()
    fitted = fit_links(np.full(5, overhead_s), busy_s, moved)
    assert fitted.bandwidth == pytest.approx(3e4, rel=0.01)
