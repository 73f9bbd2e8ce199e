"""History of a run: the events in the logs of all its services."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from fullrank.common.foreign import appended
from fullrank.common.schema import validated
from fullrank.runs.events import DIRECTORY, EVENT, SUFFIX, Event
from fullrank_controller.driver import FAR


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHistory:
    """Events of the services of a run, each in its own order."""

    controller: Sequence[Event] = ()
    replay: Sequence[Event] = ()
    learners: Mapping[str, Sequence[Event]] = field(default_factory=dict)
    """Events of each learner process."""
    ahead: int = 1
    """Iterations that may be assigned and not be durable, beside the one that is next."""


def read_history(run_dir: Path, *, stored: bool = False, updates: int = 1) -> EventHistory:
    """The events in a run directory; empty for a service without a log.

    Args:
        run_dir: The run directory.
        stored: True if the run has a store, of which it may be ahead for some time.
        updates: K, updates over a collection, which may wait for the disk together.

    Raises:
        FullrankError: A line is damaged.
    """
    return replace(next(follow(run_dir)), ahead=FAR if stored else updates)


def follow(run_dir: Path) -> Iterator[EventHistory]:
    """Yield, for ever, the events appended since the last call.

    The controller's log is read first: the events that its own depend on were appended earlier, and
    so are read with them.

    Raises:
        FullrankError: A line is damaged.
    """
    directory = run_dir / DIRECTORY
    controller = _events(directory / f"controller{SUFFIX}")
    others: dict[Path, Iterator[list[Event]]] = {}
    while True:
        controllers = next(controller)
        for path in sorted(directory.glob(f"*{SUFFIX}")):
            if path.stem != "controller":
                others.setdefault(path, _events(path))
        logs = {path.stem: next(events) for path, events in others.items()}
        yield EventHistory(
            controller=controllers or (),
            replay=logs.get("replay", ()),
            learners={name: events for name, events in logs.items() if name.startswith("learner")},
        )


def _events(path: Path) -> Iterator[list[Event]]:
    """Yield, for ever, the events appended to a file since the last call, in order."""
    numbers = count(1)
    for lines in appended(path):
        yield [_event(path, next(numbers), line) for line in lines]


def _event(path: Path, number: int, line: bytes) -> Event:
    return validated(EVENT, line, origin=f"{path}, line {number}, is not an event")
