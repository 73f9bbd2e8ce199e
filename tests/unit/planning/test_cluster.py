from pathlib import Path

import numpy as np
import pytest

from fullrank.codes import make_code
from fullrank.common.errors import ConfigError
from fullrank.planning.cluster import read_regime
from fullrank.planning.costs import Payload
from fullrank.planning.planned_run import observation_of
from fullrank.planning.simulation import play

REGIMES = sorted(Path("benchmarks/regimes").glob("*.toml"))


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "regime.toml"
    path.write_text(text)
    return path


def test_there_are_ten_regimes_and_each_plays() -> None:
    assert len(REGIMES) == 10
    for path in REGIMES:
        regime = read_regime(path)
        code = make_code("cyclic", rows=regime.learners, units=regime.agents)
        cluster = regime.cluster(Payload())
        played = play(cluster, code, regime.delays, iterations=range(3), seed=0)
        assert (played.round_s > 0).all()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("learners = 4\nagents = 3\nunit_s = 0.1\nspred = 0.1", "did you mean 'spread'"),
        ('learners = 4\nagents = 3\nunit_s = "fast"', "unit_s"),
        ("learners = 4\nunit_s = 0.1", "agents"),
        (
            'learners = 4\nagents = 3\nunit_s = 0.1\n[stragglers]\nname = "fixed_k"\nk = 5',
            "at least 5 learners",
        ),
        ('learners = 4\nagents = 3\nunit_s = 0.1\n[stragglers]\nname = "fixd_k"', "fixed_k"),
    ],
)
def test_a_bad_regime_is_refused_with_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_regime(written(tmp_path, text))


def test_services_see_no_more_than_what_arrived() -> None:
    regime = read_regime(Path("benchmarks/regimes/three_late.toml"))
    code = make_code("cyclic", rows=15, units=8, tolerance=3)
    played = play(regime.cluster(Payload()), code, regime.delays, iterations=range(5), seed=1)
    for index in range(5):
        observation = observation_of(played, index, code)
        received = np.isfinite(observation.arrival_s)
        assert received.sum() == played.needed[index]
        assert np.nanmax(observation.arrival_s) == observation.round_s == played.round_s[index]
        np.testing.assert_array_equal(received, np.isfinite(observation.compute_s))
        np.testing.assert_array_equal(observation.load, code.load)
