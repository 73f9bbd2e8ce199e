"""Orders of an administrator to a run under way, and who may give them."""

import asyncio
import logging
from pathlib import Path

import pytest
from tests.certificates import certify, security
from tests.integration.cluster import Cluster, Service, reference_digests, resolved
from tests.waiting import WAIT_S

from fullrank.common.errors import (
    AccessDenied,
    ConfigError,
    NotFound,
    ServiceLost,
    Unauthenticated,
)
from fullrank.config.toml import read_config
from fullrank.host.certificates import Role
from fullrank.net.controller_client import give_order
from fullrank.runs.checkpoint import newest

pytestmark = pytest.mark.integration

LONG = ("iterations=100000", "checkpoint.every=100000")


def begun(tmp_path: Path, *overrides: str) -> Cluster:
    """A run with certificates."""
    folder = certify(tmp_path / "certificates")
    return Cluster(tmp_path / "run", resolved(*overrides, f"tls.certificates={folder}"))


async def told(cluster: Cluster, order: str, role: Role = Role.ADMIN) -> str:
    own = security(Path(cluster.config.tls.certificates), role)
    address = await cluster.address()
    return await asyncio.to_thread(give_order, address, order, security=own)


async def under_way(cluster: Cluster) -> list[Service]:
    """Four learners of a run that has committed iterations, each ready to compute."""
    cluster.serve()
    learners = cluster.learners(4)
    await cluster.ready(len(learners))
    await cluster.status_when(lambda status: status.iterations_committed > 1, what="under way")
    return learners


async def test_a_checkpoint_is_made_at_once_and_a_stop_makes_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with begun(tmp_path, *LONG) as cluster:
        await under_way(cluster)
        done = await told(cluster, "checkpoint")
        saved = newest(cluster.run_dir / "checkpoints").iteration + 1
        assert done == f"checkpoint after {saved} iterations"
        assert "checkpoints and ends" in await told(cluster, "stop")
        controller = cluster.services[1]
        with pytest.raises(ServiceLost, match="an administrator has stopped the controller"):
            await asyncio.wait_for(controller.task, WAIT_S)
        committed = len(cluster.records())
        assert newest(cluster.run_dir / "checkpoints").iteration + 1 == committed >= saved
        cluster.services.remove(controller)
    audited = [each.getMessage() for each in caplog.records if each.name == "fullrank.audit"]
    for method in ("Checkpoint", "Stop"):
        (line,) = (each for each in audited if f"ControllerService/{method} " in each)
        assert "caller=fullrank://test/admin peer=" in line
        assert line.endswith("outcome=OK")


async def test_a_drained_learner_holds_no_row_and_the_run_goes_on(tmp_path: Path) -> None:
    async with begun(tmp_path, *LONG) as cluster:
        await under_way(cluster)
        await told(cluster, "drain=2")
        status = await cluster.status_when(
            lambda status: not status.learners[2].rows and len(status.learners) == 4,
            what="drained",
        )
        assert status.learners[2].spare == "an administrator has drained it"
        assert not status.learners[2].quarantined
        after = status.iterations_committed + 2
        await cluster.status_when(
            lambda status: status.iterations_committed >= after, what="it goes on"
        )
        with pytest.raises(NotFound, match="there is no learner 7"):
            await told(cluster, "drain=7")
        for learner in (0, 1):
            await told(cluster, f"drain={learner}")
        with pytest.raises(ConfigError, match="no other learner can compute than 3"):
            await told(cluster, "drain=3")


async def test_a_run_of_another_length_ends_there_and_has_the_same_bits(tmp_path: Path) -> None:
    async with begun(tmp_path, *LONG) as cluster:
        for learner in await under_way(cluster):
            await learner.end()  # so that no iteration ends before the order arrives
        with pytest.raises(ConfigError, match="iterations = 1: must be at least"):
            await told(cluster, "iterations=1")
        status = await cluster.status_when(lambda _: True, what="a status")
        length = status.iterations_committed + 20
        await told(cluster, f"iterations={length}")
        cluster.learners(4)
        status = await cluster.finished()
        assert status.iterations == status.iterations_committed == length
        assert read_config(cluster.run_dir).iterations == length
        assert len(cluster.records()) == length
        with pytest.raises(ServiceLost, match="not under way"):
            await told(cluster, f"iterations={length + 1}")
        shown = resolved(f"iterations={length}").config
    assert cluster.digests() == reference_digests(shown)


async def test_only_an_administrator_s_certificate_may_order(tmp_path: Path) -> None:
    async with begun(tmp_path, *LONG) as cluster:
        await under_way(cluster)
        for role in (Role.MONITOR, Role.LEARNER, Role.REPLAY):
            for order in ("checkpoint", "drain=0", "iterations=5", "stop"):
                with pytest.raises(AccessDenied, match=f"role {role} may not call .*; admin may"):
                    await told(cluster, order, role)


async def test_plain_tcp_is_refused_and_the_unix_socket_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with Cluster(tmp_path / "tcp", resolved(*LONG)) as cluster:
        await under_way(cluster)
        address = await cluster.address()
        for order in ("checkpoint", "drain=0", "iterations=5", "stop"):
            with pytest.raises(Unauthenticated, match="plain text proves nothing: set tls"):
                await asyncio.to_thread(give_order, address, order)
    audited = [each.getMessage() for each in caplog.records if each.name == "fullrank.audit"]
    assert sum("caller=none" in each and "outcome=refused" in each for each in audited) == 4
    async with Cluster(tmp_path / "local", resolved(*LONG, "controller.address=local")) as cluster:
        await under_way(cluster)
        address = await cluster.address()
        assert "checkpoint after" in await asyncio.to_thread(give_order, address, "checkpoint")


WRONG = ["", "halt", "stop=1", "drain", "drain=x", "drain=99999999999", "iterations=-1"]
WRONG += ["iterations=" + 23 * "9", "iterations=" + 5000 * "9", "checkpoint="]


@pytest.mark.parametrize("order", WRONG, ids=range(len(WRONG)))
def test_an_unknown_order_is_refused_before_anything_is_dialled(order: str) -> None:
    with pytest.raises(ConfigError, match="must be checkpoint, stop, drain=LEARNER or iter"):
        give_order("nowhere:1", order)
