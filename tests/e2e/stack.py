"""A Compose project of a test: its containers, committed iterations and clean removal."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import docker
from docker.models.containers import Container
from tests.e2e.images import Checkout, compose, contents
from tests.waiting import wait_until

from fullrank.runs.record import IterationRecord, read_records

RUN = "/var/lib/fullrank/run"

TINY = """
[collect]
warmup = 256

[checkpoint]
every = 10

[algorithm]
batch_size = 64
"""
"""Tables of a run whose rounds take milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A Compose project with a unique name."""

    checkout: Checkout
    engine: docker.DockerClient
    files: tuple[str, ...] = ("docker-compose.yml",)
    variables: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    name: str = field(default_factory=lambda: f"fullrank-{uuid.uuid4().hex[:8]}")

    def compose(self, *words: str) -> str:
        """``docker compose words...`` of this project."""
        files = [word for file in self.files for word in ("-f", str(self.checkout.deploy / file))]
        return compose("-p", self.name, *files, *self.options, *words, variables=self.variables)

    def containers(self, service: str = "") -> list[Container]:
        """Containers, including those that have ended."""
        labels = [f"com.docker.compose.project={self.name}"]
        labels += [f"com.docker.compose.service={service}"] if service else []
        return self.engine.containers.list(all=True, filters={"label": labels}, ignore_removed=True)

    def container(self, service: str) -> Container:
        """The only container of a service."""
        [found] = self.containers(service)
        return found

    def starts(self) -> dict[str, str]:
        """Last start time of each container."""
        return {str(each.name): each.attrs["State"]["StartedAt"] for each in self.containers()}

    def log(self, service: str) -> str:
        """Log of a service."""
        return self.container(service).logs().decode()

    def records(self) -> list[IterationRecord]:
        """Records of the committed iterations."""
        copy = self.checkout.path / "metrics.jsonl"
        copy.write_bytes(contents(self.container("controller"), f"{RUN}/metrics.jsonl"))
        return read_records(copy)

    def commit(self, count: int) -> list[IterationRecord]:
        """Wait for ``count`` more committed iterations; returns all records."""
        target = len(self.records()) + count
        self.eventually(lambda: len(self.records()) >= target, what=f"{target} iterations")
        return self.records()

    def eventually(self, condition: Callable[[], bool], *, what: str) -> None:
        """Return as soon as ``condition`` holds; containers take their time on a loaded host."""
        wait_until(condition, what=what)

    def joins(self) -> int:
        """Number of learners that have joined so far."""
        return self.log("controller").count("learner_joined")

    def left(self) -> list[str]:
        """Names of all objects of the project on the engine."""
        label = {"label": f"com.docker.compose.project={self.name}"}
        found = (
            *self.containers(),
            *self.engine.volumes.list(filters=label),
            *self.engine.networks.list(filters=label),
        )
        return [str(each.attrs["Name"]) for each in found]


@contextmanager
def up(stack: Stack, *words: str) -> Iterator[Stack]:
    """Start the project; at the end remove it and check that nothing is left."""
    try:
        stack.compose("up", "--detach", *words)
        yield stack
    finally:
        stack.compose("down", "--volumes", "--timeout", "10")
    assert stack.left() == []
