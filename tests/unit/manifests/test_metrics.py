"""The component of metrics: each pod of each overlay has a port that Prometheus alone scrapes."""

import asyncio
import json
import shutil
import urllib.request
from asyncio import Event
from pathlib import Path

import pytest
import yaml
from tests.kustomize import DEPLOY, parse, render
from tests.unit.manifests.test_objects import RELEASES, validate
from tests.waiting import WAIT_S, eventually
from tests.workloads import JOBSETS, workloads_in

from fullrank.config import load
from fullrank.host.process import Launch
from fullrank.host.run_directory import resolve
from fullrank_dashboard.server import serve

PORT = 9464
MONITOR = "PodMonitor"


@pytest.mark.integration
def test_prometheus_scrapes_every_pod_of_an_overlay_with_the_component(
    overlay: str, tmp_path: Path
) -> None:
    deploy = Path(shutil.copytree(DEPLOY, tmp_path / "deploy"))
    mine = deploy / "k8s/overlays/mine"
    mine.mkdir()
    ending = overlay in JOBSETS  # whose components come after those that change pods
    what = "../../base" if ending else f"../{overlay}"
    last = ", ../../components/jobset" if ending else ""
    (mine / "kustomization.yaml").write_text(
        f"resources: [{what}]\ncomponents: [../../components/metrics{last}]\n"
        "labels: [{pairs: {app.kubernetes.io/instance: fullrank}, includeSelectors: true}]\n"
    )
    objects = parse(render(mine))
    validate(objects, RELEASES[0])
    (monitor,) = (each["spec"] for each in objects if each["kind"] == MONITOR)
    wanted = monitor["selector"]["matchLabels"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    pods = [each.spec["template"] for each in workloads_in(objects).values()]
    assert len(pods) >= 3
    for pod in pods:
        assert wanted.items() <= pod["metadata"]["labels"].items()
        (container,) = (each for each in pod["spec"]["containers"] if each["name"] == "fullrank")
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports[endpoint["port"]] == PORT
        environ = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        name = "FULLRANK__METRICS__PROMETHEUS"
        assert load(environ={name: environ[name]}).config.metrics.prometheus == f"0.0.0.0:{PORT}"
    (policy,) = (
        each["spec"]
        for each in objects
        if (each["kind"], each["metadata"]["name"]) == ("NetworkPolicy", "metrics")
    )
    ((rule,), (source,)) = policy["ingress"], policy["ingress"][0]["from"]
    assert rule["ports"] == [{"port": PORT}]
    assert all(
        policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        for pod in pods
    )
    assert set(source) == {"namespaceSelector"}


async def test_the_page_of_a_run_serves_metrics_where_prometheus_asks_its_pod(
    tmp_path: Path,
) -> None:
    deploy = Path(shutil.copytree(DEPLOY, tmp_path / "deploy"))
    (mine := deploy / "k8s/overlays/mine").mkdir()
    components = "[../../components/dashboard, ../../components/metrics]"
    (mine / "kustomization.yaml").write_text(f"resources: [../../base]\ncomponents: {components}\n")
    page = workloads_in(parse(render(mine)))["dashboard"]
    assert {"name": "metrics", "containerPort": PORT} in page.ports
    [container] = page.containers
    environ = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    assert load(environ=environ).config.metrics.prometheus == f"0.0.0.0:{PORT}"
    free = {f"{each}.address": "127.0.0.1:0" for each in ("dashboard", "health")}
    own = {"dashboard.runs": ["127.0.0.1:1"], "tls.certificates": ""}
    here = {**free, **own, "metrics.prometheus": "127.0.0.1:0"}
    launch, stop = Launch(resolved=load(environ=environ, options=here), run_dir=tmp_path), Event()
    serving = asyncio.create_task(serve(launch, stop))
    announced = tmp_path / "services/dashboard.json"
    await eventually(lambda: announced.exists() or serving.done(), what="it is served")
    address = resolve("127.0.0.1:0", tmp_path, "dashboard-metrics")
    url = f"http://{address}/metrics"
    with await asyncio.to_thread(urllib.request.urlopen, url, timeout=WAIT_S) as answer:
        assert "process_cpu_seconds_total" in answer.read().decode()
    stop.set()
    await serving


def test_the_job_of_the_monitor_is_that_of_the_alerts_and_the_dashboard_is_the_one_of_compose(
    tmp_path: Path,
) -> None:
    component = DEPLOY / "k8s/components/metrics"
    monitor = yaml.safe_load((component / "pod-monitor.yaml").read_text())["spec"]
    assert monitor["selector"]["matchLabels"][monitor["jobLabel"]] == "fullrank"
    assert 'job="fullrank"' in (DEPLOY / "metrics/alerts.yml").read_text()
    (dashboard,) = parse(render(DEPLOY / "metrics"))
    assert dashboard["metadata"]["labels"] == {"grafana_dashboard": "1"}
    file = DEPLOY / "metrics/grafana/dashboards/fullrank.json"
    assert json.loads(dashboard["data"][file.name]) == json.loads(file.read_text())
