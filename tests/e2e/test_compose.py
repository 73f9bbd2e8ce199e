"""The Compose deployment: scaling, custom environments, a wrong configuration."""

import json
import os
import zipfile
from pathlib import Path
from urllib.request import urlopen

import docker
import pytest
from tests.e2e.commands import fullrank
from tests.e2e.images import checkout
from tests.e2e.stack import TINY, Stack, up

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.docker,
    pytest.mark.usefixtures("images"),
]


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
        joined = stack.container("straggler").exec_run(["fullrank", "doctor", "127.0.0.1:50063"])
        assert joined.output == b"SERVING\n"
        control = ("straggler", "get", "straggler:50062")
        assert "fixed_k" in stack.compose("run", "--rm", "admin", *control)
        assert "fullrank.audit" not in stack.log("straggler")
        stack.compose("run", "--rm", "admin", "straggler", "set", control[-1], "--model", "none")
        assert "caller=fullrank://fullrank/admin" in stack.log("straggler")


def test_the_dashboard_sees_the_run_through_its_certificate_and_comes_as_it_likes(
    docker_engine: docker.DockerClient, tmp_path: Path
) -> None:
    place = checkout(tmp_path)
    place.configure(TINY)
    stack = Stack(checkout=place, engine=docker_engine, options=("--profile", "dashboard"))
    with up(stack):
        stack.commit(5)
        page = stack.container("dashboard")
        [binding] = page.attrs["NetworkSettings"]["Ports"]["8050/tcp"]
        assert binding["HostIp"] == "127.0.0.1"
        with urlopen(f"http://127.0.0.1:{binding['HostPort']}/events") as events:
            lines = (line.removeprefix(b"data: ") for line in events if line.startswith(b"data: "))
            told = (each for each in map(json.loads, lines) if each["status"])
            facts = next(each for each in told if each["status"]["committed"] >= 5)
        assert facts["problem"] == ""
        page.kill()
        stack.commit(5)


ENVIRONMENT = """
from fullrank.environments import parallel


def parallel_env():
    return parallel.parallel_env("cooperative_navigation", agents=3)
"""

METADATA = "Metadata-Version: 2.1\nName: tiny-team\nVersion: 1.0\nRequires-Dist: pettingzoo\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _write_wheel(folder: Path) -> None:
    """A package with a PettingZoo environment, as its author would distribute it."""
    with zipfile.ZipFile(folder / "tiny_team-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_team.py", ENVIRONMENT)
        wheel.writestr("tiny_team-1.0.dist-info/METADATA", METADATA)
        wheel.writestr("tiny_team-1.0.dist-info/WHEEL", WHEEL)
        wheel.writestr("tiny_team-1.0.dist-info/RECORD", "")


TEAM = """
[environment]
name = "tiny_team:parallel_env"
"""


def _ended_well(stack: Stack) -> bool:
    """True if every container has ended with 0, and none is started again."""
    states = [each.attrs["State"] for each in stack.containers()]
    return all(state["Status"] == "exited" and state["ExitCode"] == 0 for state in states)


def test_an_environment_of_one_s_own_trains_and_every_container_ends_with_its_run(
    images: str, docker_engine: docker.DockerClient, tmp_path: Path
) -> None:
    place = checkout(tmp_path)
    place.configure(TINY + TEAM, iterations=4)
    _write_wheel(place.deploy / "extra")
    tag = f"test-{os.getpid()}"
    for service in ("collector", "learner", "replay"):
        docker_engine.images.get(f"fullrank-{service}:{images}").tag(f"fullrank-{service}", tag)
    place.build("controller", tag=tag, extra="tiny-team")
    stack = Stack(checkout=place, engine=docker_engine, variables={"FULLRANK_TAG": tag})
    try:
        with up(stack):
            stack.eventually(lambda: _ended_well(stack), what="every container has ended")
            records = stack.records()
            assert len(records) == 4
            controller = stack.container("controller")
            controller.restart()
            stack.eventually(
                lambda: "run finished: 4 iterations" in stack.log("controller"), what="it says so"
            )
            stack.eventually(lambda: _ended_well(stack), what="it has ended again")
            assert stack.records() == records
    finally:
        for service in ("collector", "controller", "learner", "replay"):
            docker_engine.images.remove(f"fullrank-{service}:{tag}")


def test_a_wrong_configuration_ends_with_one_line_at_each_attempt_until_it_is_mended(
    docker_engine: docker.DockerClient, tmp_path: Path
) -> None:
    place = checkout(tmp_path)
    run = place.deploy / "config/run.toml"
    right = run.read_text()
    place.configure("\n[code]\ntolerence = 1\n")
    stack = Stack(checkout=place, engine=docker_engine)
    with up(stack, "certificates"):
        stack.eventually(lambda: _ended_well(stack), what="certificates")
        stack.compose("up", "--detach", "--no-deps", "controller")

        def attempted() -> bool:
            return bool(stack.container("controller").attrs["RestartCount"] >= 6)

        stack.eventually(attempted, what="more attempts than five")
        said = [json.loads(line)["message"] for line in stack.log("controller").splitlines()]
        [line] = {line for line in said if " starts (pid " not in line}
        assert line.startswith("fullrank: ")
        assert "did you mean 'tolerance'?" in line
        run.write_text(right)
        stack.eventually(
            lambda: "waiting for 4 learners" in stack.log("controller"), what="it begins"
        )


def test_a_project_is_submitted_stopped_resumed_and_finished_as_an_object(
    docker_engine: docker.DockerClient, tmp_path: Path
) -> None:
    place = checkout(tmp_path)
    place.configure(TINY)
    stack = Stack(checkout=place, engine=docker_engine)

    def run(verb: str, *words: str) -> str:
        did = fullrank("run", verb, stack.name, *words)
        assert did.code == 0, did.error
        return did.output

    def state() -> tuple[str, int | None]:
        facts = json.loads(run("status", "--on", "compose", "--json"))
        return facts["state"], facts["exit_code"]

    try:
        run("submit", "--on", str(place.deploy / "docker-compose.yml"))
        stack.eventually(lambda: state() == ("RUNNING", None), what="it runs")
        stack.commit(3)
        run("stop")
        assert state() == ("PENDING", 9)
        config = place.deploy / "config/run.toml"
        end = len(stack.records()) + 3
        config.write_text(config.read_text().replace("iterations = 1000000", f"iterations = {end}"))
        run("resume")
        stack.eventually(lambda: state() == ("FINISHED", 0), what="it is finished")
        assert len(stack.records()) == end
        listed = json.loads(fullrank("run", "list", "--on", "compose", "--json").output)
        assert [each["state"] for each in listed if each["name"] == stack.name] == ["FINISHED"]
        assert f"iteration {end}/{end}" in run("logs")
    finally:
        stack.compose("down", "--volumes", "--timeout", "10")
