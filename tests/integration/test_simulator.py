"""What the simulator predicts is what services take, where compute is emulated."""

from pathlib import Path

import numpy as np
import pytest
from tests.integration.cluster import Cluster, resolved

from fullrank.planning.cluster import Cluster as Machines
from fullrank.planning.simulation import simulate
from fullrank.wiring import code_of, delays_of

pytestmark = pytest.mark.integration

UNIT_S = 0.2


@pytest.mark.parametrize("code", ["uncoded", "cyclic"])
async def test_median_rounds_agree_within_a_fifth(tmp_path: Path, code: str) -> None:
    settings = (
        f"code.name={code}",
        "learners=4",
        "iterations=9",
        f"compute.emulate_unit_s={UNIT_S}",
        "stragglers.name=fixed_k",
        "stragglers.k=1",
        "stragglers.delay_s=0.6",
    )
    async with Cluster(tmp_path, resolved(*settings)) as cluster:
        cluster.replay()
        cluster.controller()
        cluster.learners(4)
        await cluster.finished()
    config = cluster.config
    predicted = simulate(
        Machines(unit_s=UNIT_S),
        code_of(config, units=config.environment.agents),
        delays_of(config),
        iterations=config.iterations,
        seed=config.seed,
    )
    measured = [record.round_s for record in cluster.records()]
    assert np.median(measured) == pytest.approx(np.median(predicted.round_s), rel=0.2)
