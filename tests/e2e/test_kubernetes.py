"""The rendered ``local`` overlay runs: pods of real containers, without a cluster."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from tests.e2e.pods import Pods, needs_runner, running
from tests.kustomize import DEPLOY
from tests.waiting import wait_until

from fullrank.config import load
from fullrank.wiring.plugins import delays_of

pytestmark = [pytest.mark.e2e, pytest.mark.docker, needs_runner]


@pytest.mark.thorough  # names of two runs are told apart by tests of manifests
def test_two_runs_in_one_namespace_train_apart(
    images: str, docker_engine: docker.DockerClient, tmp_path: Path
) -> None:
    """Each dials its own controller and replay, and neither takes the other's transitions."""
    deploy, runs = Path(shutil.copytree(DEPLOY, tmp_path / "deploy")), ("team-a", "team-b")
    for run in runs:
        folder = deploy / "k8s/overlays" / run
        folder.mkdir()
        text = (deploy / "config/run.toml").read_text()
        (folder / "run.toml").write_text(f'learners = 1\ncode.name = "uncoded"\n{text}')
        (folder / "kustomization.yaml").write_text(
            f"resources: [../../base]\nnamePrefix: {run}-\n"
            f"labels: [{{pairs: {{app.kubernetes.io/instance: {run}}}, includeSelectors: true}}]\n"
            "configMapGenerator: [{name: configuration, behavior: merge, files: [run.toml]}]\n"
            "replicas: [{name: learner, count: 1}]\n"
        )
    with running(*runs, tag=images, engine=docker_engine, scratch=tmp_path, deploy=deploy) as pods:
        for run, other in (runs, runs[::-1]):
            pod = f"{run}-controller-0"
            pods.commit(5, pod)
            records = pods.records(pod)
            assert [record.iteration for record in records] == list(range(len(records)))
            assert {learner for record in records for learner in record.received} == {0}
            assert pods.joins(f"{run}-learner-0", pod) >= 1
            assert pods.joins(f"{other}-learner-0", pod) == 0
            assert "replay lost rows" not in pods.container(pod).logs().decode()


@pytest.fixture(scope="module")
def pods(
    images: str, docker_engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pods]:
    """The local overlay, running."""
    scratch = tmp_path_factory.mktemp("pods")
    with running("local", tag=images, engine=docker_engine, scratch=scratch) as pods:
        yield pods


def test_a_killed_learner_costs_no_iteration_and_disturbs_no_other_pod(pods: Pods) -> None:
    before = pods.starts()
    pods.commit(5)
    victim = pods.container("learner-2")
    victim.kill()
    pods.commit(5)
    victim.start()
    wait_until(lambda: pods.joins("learner-2") == 2, what="the learner joins again")
    pods.commit(5)
    records = pods.records()
    assert [record.iteration for record in records] == list(range(len(records)))
    assert all(record.exact for record in records)
    after = pods.starts()
    assert {name for name in before if after[name] != before[name]} == {victim.name}


def test_each_sidecar_delays_the_learner_that_the_model_names(pods: Pods) -> None:
    pods.commit(20)
    run = load(DEPLOY / "config/run.toml", environ={}).check().config
    lab = load(DEPLOY / "config/lab/straggler.toml", environ={}).check().config
    for record in pods.records():
        delays = delays_of(lab).delays(
            seed=run.seed, iteration=record.iteration, learners=run.learners
        )
        assert delays.max() > 0
        assert record.round_s >= max(delays[learner] for learner in record.received)
