"""Alerts, scrape configuration and dashboard, judged by Prometheus itself."""

import asyncio
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.addresses import free_address
from tests.integration.cluster import Cluster, resolved
from tests.waiting import WAIT_S

from fullrank.host.run_directory import resolve

METRICS = Path(__file__).parents[2] / "deploy" / "metrics"
DASHBOARD = METRICS / "grafana" / "dashboards" / "fullrank.json"

PARTS = ["Causes", "Check", "Action"]

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        shutil.which("promtool") is None, reason="needs promtool, of Debian's package prometheus"
    ),
]


def promtool(*words: str) -> None:
    run = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_prometheus_takes_the_configuration_and_its_alerts() -> None:
    promtool("check", "config", str(METRICS / "prometheus.yml"))


def test_each_fault_fires_its_alert_and_a_healthy_run_none() -> None:
    promtool("test", "rules", str(METRICS / "alerts_test.yml"))


def test_every_alert_is_tested_and_says_what_to_do() -> None:
    groups = yaml.safe_load((METRICS / "alerts.yml").read_text())["groups"]
    tested = (METRICS / "alerts_test.yml").read_text()
    for rule in groups[0]["rules"]:
        assert f'alertname="{rule["alert"]}"' in tested
        assert set(rule["annotations"]) == {"summary", "action"}
    page = (METRICS.parents[1] / "docs" / "runbook.md").read_text()
    entries = re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, flags=re.DOTALL | re.MULTILINE)
    assert [name for name, _ in entries] == [rule["alert"] for rule in groups[0]["rules"]]
    for _, entry in entries:
        assert re.findall(r"^\* \*\*(\w+)\*\*: ", entry, re.MULTILINE) == PARTS


@asynccontextmanager
async def prometheus(scratch: Path, targets: list[str]) -> AsyncIterator[str]:
    """Address of a Prometheus that scrapes the targets every half second."""
    address = free_address()
    job = {"job_name": "fullrank", "static_configs": [{"targets": targets}]}
    configuration = {"global": {"scrape_interval": "500ms"}, "scrape_configs": [job]}
    (scratch / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    process = await asyncio.create_subprocess_exec(
        "prometheus",
        f"--config.file={scratch / 'prometheus.yml'}",
        f"--storage.tsdb.path={scratch / 'data'}",
        f"--web.listen-address={address}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield address
    finally:
        process.terminate()
        await process.wait()


def query(address: str, expression: str) -> list[Any]:
    """The series that an expression gives; none until Prometheus is up."""
    url = f"http://{address}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return list(json.load(answer)["data"]["result"])
    except ConnectionRefusedError:
        return []
    except urllib.error.HTTPError as error:
        if error.code == 503:
            return []
        raise AssertionError(f"{expression}: {error.read().decode()}") from None
    except urllib.error.URLError:
        return []


async def shown_by(address: str, expression: str) -> list[Any]:
    """The series that an expression gives, once there are some."""
    async with asyncio.timeout(WAIT_S):
        while not (found := await asyncio.to_thread(query, address, expression)):
            await asyncio.sleep(0.05)
    return found


async def test_every_panel_of_the_dashboard_shows_something_of_a_run(tmp_path: Path) -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    (selected,) = json.loads(DASHBOARD.read_text())["templating"]["list"]
    assert selected["query"] == "label_values(fullrank_run_state, run)"
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    assert all("$run" in each or "process_" in each for each in expressions)
    absent = ("fullrank_container_", "fullrank_certificate_")  # there are none here
    expressions = [each for each in expressions if not any(name in each for name in absent)]
    late = ("stragglers.name=fixed_k", "stragglers.k=1", "stragglers.delay_s=30.0")
    played = ("collectors.count=1", "collect.mode=keyed", "collect.block=1")
    settings = resolved("metrics.prometheus=127.0.0.1:0", "iterations=100000", *late, *played)
    async with Cluster(tmp_path, settings) as cluster:
        cluster.serve(4)
        cluster.collector()
        await cluster.status_when(lambda status: status.iterations_committed > 0, what="begun")
        names = ("controller-metrics", "replay-metrics")
        targets = [resolve("127.0.0.1:0", tmp_path, name) for name in names]
        async with prometheus(tmp_path, targets) as address:
            (state, *_) = await shown_by(address, 'fullrank_run_state{state="running"} == 1')
            run = state["metric"]["run"]
            for expression in expressions:
                await shown_by(address, expression.replace("$run", run))
                if "$run" in expression:
                    other = expression.replace("$run", f"{run}-2")
                    assert not await asyncio.to_thread(query, address, other)
            rounds = await asyncio.to_thread(query, address, "rate(fullrank_rounds_total[1m])")
    assert len(rounds) == 1
    assert float(rounds[0]["value"][1]) > 0.0
