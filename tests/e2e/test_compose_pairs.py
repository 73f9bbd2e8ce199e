"""Pairs of a learner and a sidecar: containers that die cost nothing but their own restart."""

from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from tests.e2e.images import checkout
from tests.e2e.stack import TINY, Stack, up

from fullrank.config import load
from fullrank.wiring.plugins import delays_of

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.docker,
    pytest.mark.thorough,  # pods with sidecars are tested in test_kubernetes.py
    pytest.mark.usefixtures("images"),
]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


@pytest.fixture(scope="module")
def pairs(
    images: str, docker_engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """Four learners, each with its own straggler sidecar, in an endless run."""
    place = checkout(tmp_path_factory.mktemp("pairs"))
    place.configure(TINY)
    files = ("docker-compose.yml", "docker-compose.pairs.yml")
    with up(Stack(checkout=place, engine=docker_engine, files=files)) as stack:
        yield stack


def test_four_learners_with_sidecars_commit_without_the_learner_that_is_delayed(
    pairs: Stack,
) -> None:
    records = pairs.commit(20)
    run = load(DEPLOY / "config/run.toml", environ={}).check().config
    lab = load(DEPLOY / "config/lab/straggler.toml", environ={}).check().config
    assert all(record.exact for record in records)
    without = 0
    for record in records:
        delays = delays_of(lab).delays(seed=run.seed, iteration=record.iteration, learners=4)
        assert delays.max() == 1.0
        without += record.late == (int(delays.argmax()),)
    assert without > 0
