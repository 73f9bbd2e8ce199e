"""Metrics of every service, by the conventions of Prometheus, and the timelines of a round."""

import asyncio
import os
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.certificates import certify
from tests.integration.cluster import Cluster, resolved
from tests.waiting import WAIT_S, eventually

from fullrank.codes import make_code
from fullrank.common.errors import AddressInUse, ConfigError
from fullrank.host.certificates import examine, rotate, today
from fullrank.host.process import Launch
from fullrank.host.run_directory import resolve
from fullrank.runs.identity import run_of
from fullrank_learner.server import main as serve_learners

pytestmark = pytest.mark.integration

ON = "metrics.prometheus=127.0.0.1:0"


def read(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_S) as answer:
        return str(answer.read().decode())


async def scraped(cluster: Cluster, name: str) -> dict[tuple[str, str], float]:
    """Values by (name, value of the label beside the run's)."""
    announced = cluster.run_dir / "services" / f"{name}-metrics.json"
    await eventually(announced.exists, what=f"{name} serves its metrics")
    text = await asyncio.to_thread(read, resolve("127.0.0.1:0", cluster.run_dir, f"{name}-metrics"))
    values = {}
    for sample in (
        each for family in text_string_to_metric_families(text) for each in family.samples
    ):
        labels = dict(sample.labels)
        assert labels.pop("run", "") == (
            "" if "process_" in sample.name else run_of(cluster.run_dir)
        )
        values[sample.name, next(iter(labels.values()), "")] = sample.value
    return values


async def test_the_numbers_are_those_of_the_run(tmp_path: Path) -> None:
    late = ("stragglers.name=fixed_k", "stragglers.k=1", "stragglers.delay_s=30.0")
    async with Cluster(tmp_path, resolved(ON, *late)) as cluster:
        cluster.serve(4)
        await cluster.finished()
        controller = await scraped(cluster, "controller")
        replay = await scraped(cluster, "replay")
    records = cluster.records()
    assert controller["fullrank_iterations_committed", ""] == 4
    assert controller["fullrank_run_state", "finished"] == 1
    assert controller["fullrank_run_state", "running"] == 0
    assert controller["fullrank_remaining_tolerance", ""] == 1
    assert controller["fullrank_rounds_total", ""] == 4
    seconds = sum(record.round_s for record in records)
    assert controller["fullrank_round_seconds_total", ""] == pytest.approx(seconds)
    assert controller["fullrank_phase_seconds_total", "compute"] > 0
    late_rows = [n for (name, _), n in controller.items() if name == "fullrank_late_rows_total"]
    assert sum(late_rows) == sum(len(record.late) for record in records)
    assert controller["fullrank_audit_mismatches_total", ""] == 0
    sent = sum(record.bytes_sent["parameters"] for record in records)
    assert controller["fullrank_sent_bytes_total", "parameters"] == sent
    acknowledged = controller["fullrank_replay_acknowledged_position", ""]
    assert replay["fullrank_replay_head_position", ""] == acknowledged > 0
    assert controller["fullrank_round_duration_seconds_count", ""] == 4
    assert controller["fullrank_round_duration_seconds_sum", ""] == pytest.approx(seconds)
    assert controller["fullrank_configured_tolerance", ""] == 1
    assert controller["fullrank_store_seconds_count", "journal"] == 4
    assert controller["fullrank_store_seconds_count", "checkpoint"] == 4
    assert controller["fullrank_committed_units_total", ""] == 4 * 3
    assert controller["fullrank_computed_units_total", ""] >= 4 * 3
    assert controller["fullrank_lost_rows_total", ""] == 0
    assert replay["process_resident_memory_bytes", ""] > 0


async def test_rows_of_a_learner_that_leaves_are_lost(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved(ON, "iterations=100000")) as cluster:
        cluster.serve(3)
        leaving = cluster.learner()
        await cluster.status_when(
            lambda status: status.iterations_committed > 0 and len(status.learners) == 4,
            what="all compute",
        )
        rows = {len(each.rows) for each in (await cluster.ready(4)).learners}
        await leaving.end()
        await cluster.ready(3)
        controller = await scraped(cluster, "controller")
    assert {controller["fullrank_lost_rows_total", ""]} == rows


async def expiry_told(cluster: Cluster, name: str) -> float:
    """Time at which a service says that its certificate expires."""
    address = resolve("127.0.0.1:0", cluster.run_dir, f"{name}-metrics")
    families = text_string_to_metric_families(await asyncio.to_thread(read, address))
    (family,) = (each for each in families if "certificate_expiry" in each.name)
    return family.samples[0].value


async def test_every_service_tells_when_its_certificate_expires(tmp_path: Path) -> None:
    folder = certify(tmp_path / "certificates")
    settings = resolved(ON, "iterations=100000", f"tls.certificates={folder}")
    async with Cluster(tmp_path / "run", settings) as cluster:
        cluster.serve(4)
        await cluster.status_when(lambda status: status.iterations_committed > 0, what="begun")
        names = "controller", "replay", f"learner-{os.getpid()}"
        before = [await expiry_told(cluster, name) for name in names]
        roles = "controller", "replay", "learner"
        assert before == [examine(folder / role).not_after.timestamp() for role in roles]
        rotate(folder, days=60, now=today())
        served, stored, called = [await expiry_told(cluster, name) for name in names]
    assert [served, stored] == before[:2]  # until they are started again
    assert called > before[2]  # its next connection shows the new one


async def test_an_address_that_is_taken_is_said_in_one_line(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved(ON)) as cluster:
        cluster.replay()
        await scraped(cluster, "replay")
        taken = resolve("127.0.0.1:0", tmp_path, "replay-metrics")
        async with Cluster(tmp_path / "other", resolved(f"metrics.prometheus={taken}")) as other:
            with pytest.raises(
                AddressInUse, match=f"cannot listen on metrics.prometheus = {taken}"
            ):
                await other.replay().task


def test_learners_of_one_process_cannot_share_a_port() -> None:
    launch = Launch(resolved=resolved("metrics.prometheus=127.0.0.1:9464"), replicas=2)
    with pytest.raises(ConfigError, match="with --replicas its port must be 0"):
        serve_learners(launch)


async def test_a_record_tells_what_each_learner_did_and_in_that_order(tmp_path: Path) -> None:
    late = ("stragglers.name=fixed_k", "stragglers.k=1", "stragglers.delay_s=30.0")
    async with Cluster(tmp_path, resolved(*late)) as cluster:
        cluster.serve(4)
        await cluster.finished()
    load = make_code("cyclic", rows=4, units=3).load
    for record in cluster.records():
        assert set(record.assigned_s) == {*record.received, *record.late}
        assert set(record.started_s) == set(record.sent_s) == set(record.received)
        for learner in record.received:
            order = [
                record.assigned_s[learner],
                record.started_s[learner],
                record.sent_s[learner],
                record.arrival_s[learner],
                record.round_s,
            ]
            assert order == sorted(order)
            assert record.audited[learner] == load[record.rows[learner]]
        assert record.decodable_s is not None
        assert max(record.assigned_s.values()) <= record.decodable_s <= record.round_s
