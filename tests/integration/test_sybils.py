"""Streams that claim another numeric fingerprint are spares, however many and early they are."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes import Fault
from tests.integration.cluster import Cluster, reference_digests, resolved

from fullrank.common.errors import ConfigError
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.local.server import serve as serve_locally
from fullrank_controller.persistence.run_numerics import FILE

pytestmark = pytest.mark.integration

CYCLIC = ("code.name=cyclic", "learners=4")
SYBILS = 5
"""One more than there are learners."""


async def test_sybils_that_come_first_hold_no_row_and_change_no_bit(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved(*CYCLIC)) as cluster:
        cluster.serve()
        sybils = [(await cluster.fake(Fault.OTHER_FINGERPRINT))[0] for _ in range(SYBILS)]
        waiting = await cluster.status_when(
            lambda status: f"{SYBILS} have another numeric fingerprint" in status.message,
            what="the run says why it waits",
        )
        cluster.learners(4)
        status = await cluster.finished()
    assert waiting.state == pb.RUN_STATE_STARTING
    assert not any(sybil.assigned.is_set() for sybil in sybils)
    assert [learner.spare != "" for learner in status.learners] == [True] * 5 + [False] * 4
    assert cluster.digests() == reference_digests(cluster.config)


async def test_the_first_learners_numerics_are_kept_when_more_of_others_come(
    tmp_path: Path,
) -> None:
    settings = resolved(*CYCLIC, "audit.fingerprint=learners")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.serve()
        slow, _ = await cluster.fake(Fault.STALL, at=1)
        also, _ = await cluster.fake(Fault.STALL, at=1)  # beyond the tolerance: the round waits
        cluster.learners(2)
        await cluster.committed(1)
        sybils = [(await cluster.fake(Fault.OTHER_FINGERPRINT))[0] for _ in range(SYBILS)]
        await cluster.ready(4 + SYBILS)
        slow.release.set()
        also.release.set()
        await cluster.finished()
    assert not any(sybil.assigned.is_set() for sybil in sybils)
    assert cluster.digests() == reference_digests(cluster.config)


async def test_a_run_of_other_numerics_is_not_continued_in_one_process(tmp_path: Path) -> None:
    settings = resolved(*CYCLIC, "audit.fingerprint=abcdefghijklmnop")
    async with Cluster(tmp_path, settings) as cluster:
        with pytest.raises(ConfigError, match="numeric fingerprint abcdefghijklmnop"):
            await serve_locally(replace(cluster.launch, stop_with_stdin=False), cluster.run_dir)
        assert (cluster.run_dir / FILE).exists()
