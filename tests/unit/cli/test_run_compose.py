"""A run in containers of Compose is an object, and is found among the places."""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest
from tests.fakes.commands import INSPECTED, Fakes, Replies
from tests.waiting import WAIT_S

from fullrank.cli import places
from fullrank.cli.objects import RunObject, State
from fullrank.common.errors import EnvironmentFailed
from fullrank.runs.ending import failed, finished, write_ending

run = import_module("fullrank.cli.run")
ENDED = failed(EnvironmentFailed("the physics exploded"), committed=3, settings="")


RECORDED: dict[str, dict[str, Any]] = json.loads(INSPECTED.read_text())
"""Controllers as ``docker inspect`` showed them, cut to what tells one from another."""


def recorded(moment: str) -> dict[str, Any]:
    """A controller's container at a moment of its life."""
    return deepcopy(RECORDED[moment]) | {"Id": "c0ffee"}


def container(status: str, code: int = 0, **facts: Any) -> dict[str, Any]:
    """A controller's container in another state."""
    found = recorded("running")
    del found["State"]["Health"]
    found["State"] |= {"Status": status, "ExitCode": code, **facts}
    return found


def docker(found: dict[str, Any] | None, **more: object) -> Replies:
    """Replies of a Docker engine with this container."""
    first = {} if found is None else {"inspect c0ffee": [found]}
    return {"ps": "" if found is None else "c0ffee", **first, **more}


def answered(state: str, reason: str = "", exit_code: int | None = None) -> dict[str, Any]:
    return {"state": state, "reason": reason, "exit_code": exit_code, "committed": 3}


EXEC, COPY, LOGS = "exec c0ffee fullrank run status", "cp c0ffee:", "logs --tail 1 c0ffee"
AWAY = {"fails": "fullrank: monitor 127.0.0.1:50053 does not answer"}
READ = "exec c0ffee cat /var/lib/fullrank/run/run.json"
UNENDED = {"run": "team-a"}
OVER = UNENDED | {"ending": asdict(finished(committed=3, settings=""))}
NOT_THERE = {"fails": "Error response from daemon: Could not find the file"}
HEALTHY: dict[str, Any] = {"Health": {"Status": "healthy"}}


def run_json(run: Path, ended: Any) -> dict[str, str]:
    write_ending(run, ended)
    return {"copies": (run / "run.json").read_text()}


@pytest.mark.parametrize(
    ("found", "replies", "state", "exit_code", "reason"),
    [
        (recorded("starting"), {EXEC: AWAY}, "PENDING", None, "its services start"),
        (recorded("running"), {EXEC: answered("RUNNING")}, "RUNNING", None, ""),
        (recorded("stopped"), {COPY: NOT_THERE}, "PENDING", 9, "told to stop"),
        (recorded("failed"), {COPY: "failed"}, "FAILED", 3, "the physics exploded"),
        (container("running"), {EXEC: answered("STALLED", "2 of 3")}, "STALLED", None, "2 of 3"),
        (container("running"), {EXEC: AWAY}, "PENDING", None, "its services start"),
        (container("running"), {EXEC: "Traceback"}, "PENDING", None, "its services start"),
        (
            container("running", **HEALTHY),
            {EXEC: AWAY, READ: UNENDED},
            "STALLED",
            None,
            "does not answer",
        ),
        (container("running", **HEALTHY), {EXEC: AWAY, READ: OVER}, "FINISHED", 0, "3 iterations"),
        (container("paused"), {}, "STALLED", None, "paused"),
        (container("created"), {}, "PENDING", None, "half submitted"),
        (container("exited"), {COPY: "finished"}, "FINISHED", 0, "3 iterations"),
        (container("exited"), {COPY: NOT_THERE}, "STALLED", None, "cannot be read"),
        (container("exited"), {COPY: "failed"}, "FAILED", 3, "the physics exploded"),
        (container("restarting", 3), {COPY: "failed"}, "FAILED", 3, "the physics exploded"),
        (container("exited", 9), {COPY: NOT_THERE}, "PENDING", 9, "told to stop"),
        (
            container("restarting", 2),
            {COPY: NOT_THERE, LOGS: '{"message": "fullrank: unknown key"}'},
            "FAILED",
            2,
            "unknown key",
        ),
        (
            container("restarting", 9),
            {COPY: NOT_THERE, LOGS: "fullrank: replay is away"},
            "PENDING",
            9,
            "starts again: fullrank: replay is away",
        ),
        (container("exited", 137), {COPY: NOT_THERE, LOGS: ""}, "FAILED", 137, "was killed"),
        (
            container("exited", 137, OOMKilled=True),
            {COPY: NOT_THERE, LOGS: ""},
            "FAILED",
            137,
            "out of memory",
        ),
    ],
)
def test_a_project_of_compose_is_an_object(
    found: dict[str, Any],
    replies: dict[str, Any],
    state: str,
    exit_code: int | None,
    reason: str,
    fakes: Fakes,
    fullrank: Any,
    tmp_path: Path,
) -> None:
    ends = {"finished": finished(committed=3, settings=""), "failed": ENDED}
    if isinstance(ending := replies.get(COPY), str):
        (tmp_path / "kept").mkdir()
        replies = {COPY: run_json(tmp_path / "kept", ends[ending])}
    fakes.set("docker", docker(found, **replies))
    outcome = fullrank("run", "status", "team-a", "--on", "compose", "--json")
    assert outcome.code == 0, outcome.error
    facts = json.loads(outcome.output)
    assert (facts["state"], facts["exit_code"]) == (state, exit_code)
    assert reason in facts["reason"]
    assert (facts["name"], facts["on"]) == ("team-a", "compose")
    project = found["Config"]["Labels"]["com.docker.compose.project"]
    assert facts["results"] == f"volume {project}_run"


def test_what_was_removed_or_is_not_understood_is_one_line(fakes: Fakes, fullrank: Any) -> None:
    gone = {"inspect gone": {"fails": "Error: No such object: gone"}}
    fakes.set("docker", {**docker(container("paused")), "ps": "gone\nc0ffee", **gone})
    (found,) = json.loads(fullrank("run", "list", "--on", "compose", "--json").output)
    assert found["name"] == recorded("running")["Config"]["Labels"]["com.docker.compose.project"]
    for answer in ("no JSON", [{"Id": "c0ffee"}]):
        fakes.set("docker", {"ps": "c0ffee", "inspect c0ffee": answer})
        outcome = fullrank("run", "status", "team-a", "--on", "compose")
        assert (outcome.code, outcome.error.count("\n")) == (9, 1)
        assert "docker answers what is not understood" in outcome.error


def test_only_runs_of_this_host_are_followed(fakes: Fakes, fullrank: Any) -> None:
    fakes.set("docker", docker(container("paused")))
    refused = fullrank("run", "status", "team-a", "--on", "compose", "--follow")
    assert (refused.code, refused.error.count("\n")) == (2, 1)
    assert "`fullrank run logs team-a --follow`" in refused.error


def test_a_project_is_submitted_once_stopped_resumed_and_its_log_followed(
    fakes: Fakes, fullrank: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COMPOSE_FILE", raising=False)
    (tmp_path / "run.toml").write_text("iterations = 3\n")
    submit = ("run", "submit", "team-a", "--on", "compose", "--config", "run.toml")
    fakes.set("docker", docker(None, compose=""))
    assert fullrank(*submit).error == (
        "fullrank: there is no deploy/docker-compose.yml; name the Compose file by --on FILE\n"
    )
    (tmp_path / "compose.yml").write_text("")
    assert fullrank(*submit[:3], "--on", "compose.yml", *submit[5:]).code == 0
    assert fakes.calls()[-1] == "docker compose --project-name team-a up --detach"
    fakes.set("docker", docker(container("exited", 9), compose="", **{COPY: NOT_THERE}))
    again = fullrank(*submit[:3], "--on", "compose.yml", *submit[5:])
    assert (again.code, again.error.count("\n")) == (5, 1)
    for verb in ("stop", "resume", "logs"):
        assert fullrank("run", verb, "team-a").code == 0
    calls = [line.partition("team-a ")[2] for line in fakes.calls() if " compose " in line]
    assert calls == ["up --detach", "stop", "start", "logs controller"]
    assert fullrank("run", "logs", "team-a", "--follow").code == 0
    assert fakes.calls()[-1].endswith("team-a logs --follow controller")
    refused = fullrank("run", "resume", "team-a", "--local")
    assert refused.code == 2
    assert refused.error.startswith("fullrank: --local is for runs of this host")


@pytest.mark.parametrize(
    ("found", "replies", "said"),
    [
        (container("exited", 9), {COPY: NOT_THERE}, "stopped, with a checkpoint; "),
        (container("exited", 143), {COPY: NOT_THERE}, "stopped, with a checkpoint; "),
        (container("exited", 137), {COPY: NOT_THERE, LOGS: ""}, "FAILED: it was killed (exit"),
        (container("exited", 3), {COPY: "failed"}, "FAILED: the physics exploded (exit code 3)"),
        (container("created"), {}, "PENDING: half submitted"),
    ],
)
def test_a_project_that_is_stopped_says_how_its_run_stands(
    found: dict[str, Any],
    replies: dict[str, Any],
    said: str,
    fakes: Fakes,
    fullrank: Any,
    tmp_path: Path,
) -> None:
    if replies.get(COPY) == "failed":
        (tmp_path / "kept").mkdir()
        replies = {COPY: run_json(tmp_path / "kept", ENDED)}
    fakes.set("docker", docker(found, compose="", **replies))
    outcome = fullrank("run", "stop", "team-a", "--on", "compose")
    assert outcome.code == 0, outcome.error
    assert said in outcome.output
    assert any(line.endswith("team-a stop") for line in fakes.calls())


def test_a_project_whose_run_has_finished_is_not_stopped(
    fakes: Fakes, fullrank: Any, tmp_path: Path
) -> None:
    over = run_json(tmp_path, finished(committed=3, settings=""))
    fakes.set("docker", docker(container("exited"), compose="", **{COPY: over}))
    outcome = fullrank("run", "stop", "team-a", "--on", "compose")
    assert (outcome.code, outcome.error.count("\n")) == (1, 1)
    assert "FINISHED: 3 iterations committed: nothing to stop" in outcome.error
    assert not any(" compose " in line for line in fakes.calls())


@pytest.mark.parametrize(
    ("text", "given", "learners", "collectors"),
    [
        ("", {}, None, None),
        ("learners = 2\n[collectors]\ncount = 3\n", {}, "2", "3"),
        ("learners = 2\n", {"FULLRANK_LEARNERS": "5", "FULLRANK_COLLECTORS": "1"}, "5", "1"),
        ("learners = 2\n", {"FULLRANK_LEARNERS": ""}, "2", None),
    ],
)
def test_as_many_learners_and_collectors_are_started_as_the_file_or_a_variable_says(
    text: str,
    given: dict[str, str],
    learners: str | None,
    collectors: str | None,
    fakes: Fakes,
    fullrank: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("FULLRANK_LEARNERS", "FULLRANK_COLLECTORS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    (config := tmp_path / "run.toml").write_text(text)
    (file := tmp_path / "compose.yml").write_text("")
    fakes.set("docker", docker(None, compose=""))
    submitted = fullrank("run", "submit", "team-a", "--on", str(file), "--config", str(config))
    assert submitted.code == 0, submitted.error
    environ = fakes.environ()
    assert (environ["COMPOSE_FILE"], environ["FULLRANK_RUN"]) == (str(file), str(config))
    started = environ.get("FULLRANK_LEARNERS"), environ.get("FULLRANK_COLLECTORS")
    assert started == (learners, collectors)


def test_a_place_without_its_command_is_one_line_and_left_out_of_the_list(
    fakes: Fakes, fullrank: Any, begun: Path
) -> None:
    for place, command in (("compose", "docker"), ("kubernetes", "kubectl")):
        outcome = fullrank("run", "list", "--on", place)
        assert outcome.code == 9
        assert outcome.error == (
            f"fullrank: there is no {command} on PATH; install it, or choose --on host\n"
        )
    fakes.set("kubectl", {"": {"fails": "The connection to the server was refused"}})
    assert "server was refused" in fullrank("run", "list", "--on", "kubernetes").error
    listed = fullrank("run", "list", "--json")
    assert (listed.code, listed.error) == (0, "")
    (found,) = json.loads(listed.output)
    assert (found["name"], found["on"], found["state"]) == ("one", "host", "PENDING")
    assert "half submitted" in fullrank("run", "list").output


def test_a_name_that_two_places_have_needs_its_place(
    fakes: Fakes, fullrank: Any, begun: Path
) -> None:
    asked = "ps --all --quiet --no-trunc --filter=label=com.docker.compose.service=controller"
    other = {f"{asked} --filter=label=com.docker.compose.project=none": ""}
    fakes.set("docker", {**other, **docker(container("paused"))})
    begun.rename("runs/team-a")
    outcome = fullrank("run", "status", "team-a")
    assert outcome.code == 2
    assert "a run team-a on host and on compose: say which by --on" in outcome.error
    assert "half submitted" in fullrank("run", "status", "runs/team-a").output
    assert "STALLED: paused" in fullrank("run", "status", "team-a", "--on", "compose").output
    assert "there is no run 'none'" in fullrank("run", "status", "none").error
    unknown = fullrank("run", "stop", "none", "--on", "compose")
    assert (unknown.code, unknown.error.count("\n")) == (1, 1)
    assert "must be host, compose, kubernetes" in fullrank("run", "list", "--on", "moon").error
    assert fullrank("run", "submit", "UPPER").code == 2
    assert fullrank("run", "submit", "../up").code == 2


def test_a_file_that_is_missing_is_said_before_any_place_is_asked(
    fakes: Fakes, fullrank: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COMPOSE_FILE", raising=False)
    for place, file in (("compose", "Compose file"), ("kubernetes", "overlay")):
        outcome = fullrank("run", "submit", "team-a", "--on", place)
        assert (outcome.code, outcome.error.count("\n")) == (2, 1)
        assert f"name the {file} by --on" in outcome.error
    assert fakes.calls() == []


class Answering:
    """A place whose runs are named once all that are asked have been."""

    def __init__(self, name: str, wait: Callable[[], object]) -> None:
        self.name, self._wait = name, wait

    def names(self) -> list[str]:
        self._wait()
        return [f"run-{self.name}"]

    def look(self, name: str) -> RunObject:
        self._wait()
        return RunObject(name, self.name, State.RUNNING, "", None, "")


def test_places_and_their_runs_are_asked_at_once(
    fullrank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = Barrier(2)
    names = ("here", "there")
    monkeypatch.setattr(
        run, "PLACES", {each: Answering(each, lambda: together.wait(WAIT_S)) for each in names}
    )
    listed = json.loads(fullrank("run", "list", "--json").output)
    assert [each["name"] for each in listed] == ["run-here", "run-there"]


def test_a_place_that_does_not_answer_in_time_is_left_out_in_one_line(
    fullrank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = Event()
    monkeypatch.setattr(places, "ANSWER_S", 0.0)
    monkeypatch.setattr(run, "PLACES", {"there": Answering("there", never.wait)})
    outcome = fullrank("run", "list", "--json")
    never.set()
    assert (outcome.code, json.loads(outcome.output)) == (0, [])
    assert outcome.error == "there is left out: no answer within 0 s\n"
