"""Compose: settings of ``run.toml`` hold where no variable is given, and variables where one is."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.kustomize import DEPLOY

from fullrank.config import RunConfig, load

FILE = DEPLOY / "docker-compose.yml"
PROJECT = {"COMPOSE_PROJECT_NAME": "team-a"}


def _filled(text: str, variables: Mapping[str, str]) -> str:
    """A text of the file with its variables, as Compose replaces them."""
    return re.sub(
        r"\$\{(\w+)(?::-([^}]*))?\}", lambda found: variables.get(found[1]) or found[2] or "", text
    )


def _config(service: str, run: Path, **variables: str) -> RunConfig:
    """The configuration of a service."""
    given = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"][service]["environment"]
    environ = {name: _filled(value or "", PROJECT | variables) for name, value in given.items()}
    return load(run, environ=environ).config


def _replicas(service: str, **variables: str) -> int:
    found = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"][service]["deploy"]
    return int(_filled(found["replicas"], variables))


OWN = """
learners = 2
[collectors]
count = 4
[collect]
mode = "free"
[store]
url = "s3://bucket/run"
[tls]
sidecar = true
[metrics]
prometheus = "0.0.0.0:9464"
"""


@pytest.mark.parametrize("service", ["controller", "replay", "learner", "collector"])
def test_without_variables_a_service_has_the_settings_of_run_toml(
    service: str, tmp_path: Path
) -> None:
    (own := tmp_path / "run.toml").write_text(OWN)
    files = [own, *(DEPLOY / "config").rglob("run.toml")]
    assert len(files) == 4
    for run in files:
        expected, config = load(run).config, _config(service, run)
        if service == "controller":
            expected = replace(expected, name="team-a")
        if service == "learner":
            expected = replace(expected, controller=config.controller)
        assert config == expected


def test_a_variable_counts_for_the_controller_and_for_the_containers_alike(tmp_path: Path) -> None:
    (own := tmp_path / "run.toml").write_text(OWN)
    given = {"FULLRANK_LEARNERS": "7", "FULLRANK_COLLECTORS": "3", "FULLRANK_STORE": "s3://other"}
    config = _config("controller", own, **given)
    assert (config.learners, config.collectors.count) == (7, 3)
    assert config.store.url == "s3://other"
    assert (_replicas("learner", **given), _replicas("collector", **given)) == (7, 3)


def test_by_default_as_many_learners_are_started_as_the_run_waits_for() -> None:
    sized = load(DEPLOY / "config/run.toml").size().config
    assert (_replicas("learner"), _replicas("collector")) == (sized.learners, 0)


@pytest.mark.parametrize("name", ["awl", "cmarl"])
def test_a_file_of_variables_agrees_with_the_run_that_it_names(name: str) -> None:
    lines = (DEPLOY / f"{name}.env").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")
    config = load(DEPLOY / given["FULLRANK_RUN"]).config
    assert _replicas("learner", **given) == config.learners
    assert _replicas("collector", **given) == config.collectors.count
