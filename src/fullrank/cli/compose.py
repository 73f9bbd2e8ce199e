"""Runs as projects of Docker Compose: a run is the containers of its project."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from fullrank.cli.containers import (
    FINAL,
    GOES_ON,
    RUN_DIR,
    TOLD,
    answer,
    call,
    last_line,
    silent,
    store_of,
    understood,
)
from fullrank.cli.objects import (
    HALF_SUBMITTED,
    Condition,
    RunObject,
    State,
    by_ending,
    by_exit,
    taken,
)
from fullrank.common.errors import ConfigError, NotFound, ServiceLost
from fullrank.common.types import JSON
from fullrank.config.layers import load
from fullrank.runs.ending import read_ending
from fullrank.runs.identity import IDENTITY

KILLED = 137
"""Exit code of a container that SIGKILL has ended."""
LABEL = "com.docker.compose"
"""Prefix of the labels that Compose gives a container."""


class Compose:
    """Projects of Docker Compose on this host.

    Args:
        file: The Compose file of new runs; by default ``COMPOSE_FILE``, or that of a checkout.
    """

    name = "compose"

    def __init__(self, file: Path | None = None) -> None:
        self._file = file

    @understood("docker")
    def names(self) -> list[str]:
        """Projects with a controller.

        Raises:
            ServiceLost: Docker does not answer.
        """
        ours = [each for each in _controllers() if "fullrank-controller" in each["Config"]["Image"]]
        return sorted({each["Config"]["Labels"][f"{LABEL}.project"] for each in ours})

    @understood("docker")
    def knows(self, name: str) -> bool:
        """True if a project has a controller."""
        return bool(_controllers(name))

    @understood("docker")
    def look(self, name: str) -> RunObject:
        """The run of a project.

        Raises:
            ServiceLost: Docker does not answer, or has no controller of it.
        """
        found = _controllers(name)
        volumes = [each for each in found[0]["Mounts"] if each["Destination"] == RUN_DIR]
        results = store_of(found) or "".join(f"volume {each.get('Name')}" for each in volumes)
        return RunObject(name, self.name, *_condition_of(found[0]), results)

    def submit(self, name: str, config: Path | None) -> None:
        """Start the containers of a new project.

        Raises:
            ConfigError: There is no Compose file.
            RunDirectoryInUse: There is such a project.
            ServiceLost: Docker does not answer.
        """
        file = str(self._file or os.environ.get("COMPOSE_FILE", "deploy/docker-compose.yml"))
        if not all(map(os.path.exists, file.split(os.pathsep))):
            raise ConfigError(f"there is no {file}; name the Compose file by --on FILE")
        if self.knows(name):
            raise taken(name, self.name)
        env = {"COMPOSE_FILE": file} | ({} if config is None else _variables(config))
        _compose(name, "up", "--detach", env=env)

    def stop(self, name: str) -> str:
        """Stop the containers of a project, and say how its run stands.

        Raises:
            NotFound: It has finished.
        """
        if (run := self.look(name)).state is State.FINISHED:
            remedy = f"`docker compose --project-name {name} down` removes its containers"
            raise NotFound(f"{run}: nothing to stop; {remedy}")
        _compose(name, "stop")
        found = self.look(name)
        told = found.state is State.PENDING and found.exit_code in TOLD
        return GOES_ON % name if told else str(found)

    def resume(self, name: str) -> None:
        """Start the containers of a project again."""
        _compose(name, "start")

    def logs(self, name: str, *, follow: bool) -> None:
        """Print the log of the controller."""
        _compose(name, "logs", *["--follow"] * follow, "controller")


def _variables(config: Path) -> dict[str, str]:
    """Variables of the Compose file that start the learners and collectors of a ``run.toml``.

    Variables of this process count more.
    """
    own = load(config).config
    counts = {"FULLRANK_LEARNERS": own.learners, "FULLRANK_COLLECTORS": own.collectors.count}
    said = {name: str(count) for name, count in counts.items() if count}
    given = {name: os.environ[name] for name in said if os.environ.get(name)}
    return {"FULLRANK_RUN": str(config.resolve()), **said, **given}


def _compose(name: str, *words: str, env: Mapping[str, str] | None = None) -> None:
    call("docker", "compose", "--project-name", name, *words, env=env, shown=True)


def _controllers(name: str = "") -> list[JSON]:
    """The controller of a project, or those of all, as ``docker inspect`` shows them."""
    labels = ("service=controller", f"project{'=' * bool(name)}{name}", "oneoff=False")
    filters = [f"--filter=label={LABEL}.{label}" for label in labels]
    ids = call("docker", "ps", "--all", "--quiet", "--no-trunc", *filters).split()
    return _inspected(*ids)


def _inspected(*ids: str) -> list[JSON]:
    found: list[JSON] = []
    for each in ids:
        with suppress(ServiceLost):  # it has been removed
            found += json.loads(call("docker", "inspect", each))
    return found


def _condition_of(controller: JSON) -> Condition:
    """The condition of a run, by its controller's container."""
    state, place = controller["State"], controller["Id"]
    status, code = state["Status"], int(state["ExitCode"])
    if status == "running":
        try:
            return answer("docker", "exec", place)
        except ServiceLost as error:
            for now in _inspected(place):
                if now["State"]["Pid"] != state["Pid"]:  # it has ended meanwhile
                    return _condition_of(now)
            if state.get("Health", {}).get("Status") == "healthy":
                return silent("docker", "exec", place, why=str(error))
            return Condition(State.PENDING, "its services start")
    if status == "paused":
        return Condition(State.STALLED, status)
    if status == "created":
        return HALF_SUBMITTED
    with TemporaryDirectory() as folder, suppress(ServiceLost):
        call("docker", "cp", f"{place}:{RUN_DIR}/{IDENTITY}", f"{folder}/{IDENTITY}")
        if (ending := read_ending(Path(folder))) is not None:
            return by_ending(ending)
    if not code:
        return Condition(State.STALLED, "it has ended, and its run directory cannot be read")
    if status == "exited" and code in TOLD:
        return Condition(State.PENDING, "told to stop", code)
    reason = last_line("docker", "logs", "--tail", "1", place)
    if code == KILLED:
        reason = "out of memory" if state.get("OOMKilled") else "it was killed"
    if status == "restarting" and code not in FINAL:
        return Condition(State.PENDING, f"starts again: {reason}", code)
    return by_exit(code, reason)
