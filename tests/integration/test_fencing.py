"""Only the controller with the highest term of a run continues."""

import asyncio
import json
import logging
from pathlib import Path

import grpc
import pytest
from tests.addresses import free_address
from tests.fakes import Fault
from tests.integration.cluster import Cluster, reference_digests, resolved
from tests.waiting import WAIT_S

from fullrank import __version__
from fullrank.common.errors import StaleTerm
from fullrank.net.controller_client import ControllerClient, WorkCall
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import RunTerm

pytestmark = pytest.mark.integration

UNCODED = ("code.name=uncoded", "learners=3")


async def superseded(cluster: Cluster) -> str:
    """Start a controller and return the error by which it ends as superseded."""
    controller = cluster.controller()
    with pytest.raises(StaleTerm) as raised:
        await asyncio.wait_for(controller.task, WAIT_S)
    controller.stop.set()
    return str(raised.value)


async def greet(client: ControllerClient, *, served: RunTerm | None) -> WorkCall:
    """A stream on which a learner has said Hello."""
    call = client.work()
    hello = pb.Hello(version=__version__, host="here", served=served)
    await call.write(pb.LearnerMessage(hello=hello).SerializeToString())
    return call


async def test_of_two_controllers_on_copies_of_a_directory_one_goes_on(tmp_path: Path) -> None:
    settings = resolved(*UNCODED, f"replay.address={free_address()}")
    one, other = Cluster(tmp_path / "one", settings), Cluster(tmp_path / "other", settings)
    async with one, other:
        one.replay()
        first = one.controller()
        slow, _ = await one.fake(Fault.STALL, at=1)  # keeps its second round open
        one.learners(2)
        await asyncio.wait_for(slow.assigned.wait(), WAIT_S)

        identity = json.loads((one.run_dir / "run.json").read_text())
        other.run_dir.mkdir()
        del identity["directory"], identity["inode"]  # restored where the original is not
        (other.run_dir / "run.json").write_text(json.dumps({**identity, "term": 0}))
        assert "opened in term 1 of run" in await superseded(
            other
        )  # the copy's first term is 1, too

        other.controller()  # its second one is 2
        other.learners(3)
        await other.finished()
        slow.release.set()
        with pytest.raises(StaleTerm, match=r"opened in term 2 of run .*; term 1"):
            await asyncio.wait_for(first.task, WAIT_S)
        first.stop.set()
    reference = reference_digests(settings.config)
    assert other.digests() == reference
    assert one.digests() == reference[:2]  # the round that was open ends, with the same bits
    assert {record.term for record in other.records()} == {2}


async def test_a_false_claim_of_a_later_term_ends_its_own_stream_and_is_audited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fullrank.audit")
    async with Cluster(tmp_path, resolved(*UNCODED)) as cluster:
        cluster.serve()
        client = ControllerClient(await cluster.address())
        run = (await client.status()).run
        call = await greet(client, served=RunTerm(run=run, term=2**63))
        assert await call.code() is grpc.StatusCode.ABORTED
        assert f"served term {2**63} of run {run}, and nothing" in (await call.details() or "")
        cluster.learners(3)
        await cluster.finished()
        await client.close()
    assert f"served={2**63} outcome=false" in caplog.text
    assert cluster.digests() == reference_digests(cluster.config)


async def test_a_true_claim_of_a_later_term_ends_the_controller(tmp_path: Path) -> None:
    """Replay proves it: neither directory knows of the other."""
    settings = resolved(*UNCODED, f"replay.address={free_address()}")
    one, other = Cluster(tmp_path / "one", settings), Cluster(tmp_path / "other", settings)
    async with one, other:
        one.replay()
        first = one.controller()
        slow, _ = await one.fake(Fault.STALL, at=1)  # keeps its second round open
        one.learners(2)
        await asyncio.wait_for(slow.assigned.wait(), WAIT_S)
        identity = json.loads((one.run_dir / "run.json").read_text())
        other.run_dir.mkdir()
        del identity["directory"], identity["inode"]  # restored where the original is not
        (other.run_dir / "run.json").write_text(json.dumps(identity))
        other.controller()
        other.learners(3)
        await other.finished()
        client = ControllerClient(await one.address())
        call = await greet(client, served=RunTerm(run=identity["run"], term=2))
        assert await call.code() is grpc.StatusCode.ABORTED
        with pytest.raises(StaleTerm, match=r"opened in term 2 of run .* a later controller runs"):
            await asyncio.wait_for(first.task, WAIT_S)
        first.stop.set()
        await client.close()
    assert other.digests() == reference_digests(settings.config)
    assert one.digests() == other.digests()[:1]
