"""The Compose deployment: it trains, and containers that die cost nothing but their own start."""

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from tests.e2e.images import BASE_IMAGE, checkout
from tests.e2e.stack import Stack, up

from fullrank.cli.compose import rendered
from fullrank.config import load
from fullrank.wiring import delays_of

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.docker,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("images"),
]

TINY = """
[collect]
warmup = 256

[checkpoint]
every = 10

[algorithm]
batch_size = 64
"""

MB = 1_000_000
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


@pytest.fixture(scope="module")
def pairs(
    images: str, docker_engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """Four learners, each with a straggler sidecar of its own, in a run without end."""
    place = checkout(tmp_path_factory.mktemp("pairs"))
    place.configure(TINY)
    (place.deploy / "pairs.yml").write_text(rendered(learners=4, base="docker-compose.yml"))
    files = ("docker-compose.yml", "pairs.yml")
    with up(Stack(checkout=place, engine=docker_engine, files=files)) as stack:
        yield stack


def test_four_learners_with_sidecars_commit_and_nobody_waits_for_a_straggler(pairs: Stack) -> None:
    records = pairs.commit(20)
    run = load(DEPLOY / "config/run.toml", environ={}).check().config
    lab = load(DEPLOY / "config/straggler.toml", environ={}).check().config
    assert all(record.exact for record in records)
    for record in records:
        delays = delays_of(lab).delays(seed=run.seed, iteration=record.iteration, learners=4)
        assert delays.max() == 1.0
        assert record.round_s >= max(delays[learner] for learner in record.received)
    assert any(delays_of(lab).delays(seed=0, iteration=0, learners=4) > 0)


def _restarted(stack: Stack, before: dict[str, str]) -> set[str]:
    """Names of the containers that were started since ``before``."""
    after = stack.starts()
    assert after.keys() == before.keys()
    return {name for name in before if after[name] != before[name]}


def test_a_killed_learner_costs_no_iteration_and_no_other_container(pairs: Stack) -> None:
    pairs.commit(1)
    before, joined = pairs.starts(), pairs.joins()
    victim = pairs.container("learner-2")
    victim.kill()
    pairs.commit(5)
    victim.start()
    pairs.eventually(lambda: pairs.joins() > joined, what="the learner joins again")
    records = pairs.commit(5)
    assert [record.iteration for record in records] == list(range(len(records)))
    assert {record.term for record in records} == {records[0].term}
    assert _restarted(pairs, before) == {victim.name}


def test_a_killed_replay_service_costs_no_iteration_and_no_other_container(pairs: Stack) -> None:
    pairs.commit(1)
    before = pairs.starts()
    victim = pairs.container("replay")
    victim.kill()
    victim.start()
    records = pairs.commit(10)
    assert [record.iteration for record in records] == list(range(len(records)))
    assert {record.term for record in records} == {records[0].term}
    assert _restarted(pairs, before) == {victim.name}


def test_a_killed_controller_goes_on_with_the_learners_that_it_had(pairs: Stack) -> None:
    known = pairs.commit(15)
    before = pairs.starts()
    victim = pairs.container("controller")
    victim.kill()
    victim.start()
    pairs.eventually(lambda: len(pairs.records()) >= len(known), what="it has caught up")
    records = pairs.commit(10)
    assert [record.iteration for record in records] == list(range(len(records)))
    assert records[-1].term == known[-1].term + 1
    assert "resumed" in pairs.log("controller")
    same = len(known) - 1  # committed before; the kill may have come in the midst of the last
    assert [each.update_digest for each in records[:same]] == [
        each.update_digest for each in known[:same]
    ]
    assert _restarted(pairs, before) == {victim.name}


def test_learners_may_be_scaled_up_and_down_while_the_lab_s_proxy_tells_them_apart(
    docker_engine: docker.DockerClient, tmp_path: Path
) -> None:
    place = checkout(tmp_path)
    place.configure(TINY)
    stack = Stack(
        checkout=place,
        engine=docker_engine,
        options=("--env-file", str(place.deploy / "lab.env")),
    )
    with up(stack):
        stack.commit(5)
        term = stack.records()[0].term
        scale = ("up", "--detach", "--no-recreate", "--scale")
        stack.compose(*scale, "learner=6")
        stack.eventually(lambda: stack.joins() == 6, what="two more learners")
        records = stack.commit(10)
        assert any(5 in (*record.received, *record.late) for record in records)
        stack.compose(*scale, "learner=4")
        records = stack.commit(10)
        assert [record.iteration for record in records] == list(range(len(records)))
        assert {record.term for record in records} == {term}
        assert len(stack.containers("learner")) == 4
        joined = stack.container("straggler").exec_run(["fullrank", "health", "127.0.0.1:50062"])
        assert joined.output == b"SERVING\n"


ENVIRONMENT = """
from fullrank.environments.parallel import cooperative_navigation_v0


def parallel_env():
    return cooperative_navigation_v0()
"""

METADATA = "Metadata-Version: 2.1\nName: tiny-team\nVersion: 1.0\nRequires-Dist: pettingzoo\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _write_wheel(folder: Path) -> None:
    """A package with a PettingZoo environment, as its author would hand it over."""
    with zipfile.ZipFile(folder / "tiny_team-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_team.py", ENVIRONMENT)
        wheel.writestr("tiny_team-1.0.dist-info/METADATA", METADATA)
        wheel.writestr("tiny_team-1.0.dist-info/WHEEL", WHEEL)
        wheel.writestr("tiny_team-1.0.dist-info/RECORD", "")


FINITE = """
[environment]
name = "tiny_team:parallel_env"
"""


def test_an_environment_of_one_s_own_trains_and_a_finished_run_stays_finished(
    images: str, docker_engine: docker.DockerClient, tmp_path: Path
) -> None:
    place = checkout(tmp_path)
    place.configure(TINY + FINITE)
    run = place.deploy / "config/run.toml"
    run.write_text("iterations = 4\n" + run.read_text())
    _write_wheel(place.deploy / "extra")
    tag = f"test-{os.getpid()}"
    for service in ("learner", "replay"):
        docker_engine.images.get(f"fullrank-{service}:{images}").tag(f"fullrank-{service}", tag)
    place.build("controller", tag=tag, extra="tiny-team")
    stack = Stack(checkout=place, engine=docker_engine, variables={"FULLRANK_TAG": tag})
    try:
        with up(stack):
            stack.eventually(lambda: "finished" in stack.log("controller"), what="finished")
            records = stack.records()
            assert len(records) == 4
            controller = stack.container("controller")
            controller.restart()
            stack.eventually(
                lambda: stack.log("controller").count("finished") == 2, what="finished again"
            )
            assert stack.records() == records
            controller.reload()
            assert controller.attrs["State"]["Running"]
    finally:
        for service in ("controller", "learner", "replay"):
            docker_engine.images.remove(f"fullrank-{service}:{tag}")


def test_a_wrong_configuration_ends_with_one_line_after_a_few_attempts(
    docker_engine: docker.DockerClient, tmp_path: Path
) -> None:
    place = checkout(tmp_path)
    place.configure("\n[code]\ntolerence = 1\n")
    stack = Stack(checkout=place, engine=docker_engine)
    with up(stack, "--no-deps", "controller"):

        def ended() -> bool:
            container = stack.container("controller")
            return container.attrs["RestartCount"] == 5 and container.status == "exited"

        stack.eventually(ended, what="it gives up")
        assert stack.container("controller").attrs["State"]["ExitCode"] == 2
        lines = stack.log("controller").splitlines()
        assert len(lines) == 6
        assert len(set(lines)) == 1
        assert lines[0].startswith("fullrank: ")
        assert "did you mean 'tolerance'?" in lines[0]


@pytest.mark.parametrize("service", ["replay", "straggler"])
def test_a_service_that_computes_nothing_holds_no_torch(
    images: str, docker_engine: docker.DockerClient, service: str
) -> None:
    output = docker_engine.containers.run(
        f"fullrank-{service}:{images}",
        ["-c", "import importlib.util as u; print(u.find_spec('torch'), u.find_spec('numpy'))"],
        entrypoint="python",
        remove=True,
        read_only=True,
    )
    assert output.startswith(b"None ModuleSpec")


def _size(engine: docker.DockerClient, image: str) -> int:
    return int(engine.images.get(image).attrs["Size"])


@pytest.mark.parametrize("service", ["replay", "straggler"])
def test_an_image_without_torch_adds_150_mb_at_most(
    images: str, docker_engine: docker.DockerClient, service: str
) -> None:
    base = _size(docker_engine, BASE_IMAGE or "python:3.11-slim-bookworm")
    assert _size(docker_engine, f"fullrank-{service}:{images}") - base < 150 * MB


@pytest.mark.parametrize("service", ["controller", "learner", "replay", "straggler"])
def test_an_image_runs_as_nobody_in_particular_and_says_what_is_missing(
    images: str, docker_engine: docker.DockerClient, service: str
) -> None:
    image = f"fullrank-{service}:{images}"
    assert docker_engine.images.get(image).attrs["Config"]["User"] == "10001:10001"
    with pytest.raises(docker.errors.ContainerError) as raised:
        docker_engine.containers.run(image, remove=True, read_only=True)
    assert raised.value.exit_status == 2
    assert isinstance(raised.value.stderr, bytes)
    lines = raised.value.stderr.decode().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("fullrank: cannot read the configuration /etc/fullrank/")
