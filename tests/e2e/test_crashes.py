"""kill -9 at any point: nothing committed is lost, nothing else restarts, and no bit differs."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.addresses import free_address
from tests.e2e.commands import committed, config_of, digests, final_state, records, settings
from tests.e2e.forked import Forked, nothing
from tests.e2e.hung_disk import hang_at_sync
from tests.faultlab.history import read_history
from tests.faultlab.invariants import violations
from tests.waiting import wait_until

from fullrank.common.failpoints import VARIABLE
from fullrank.net.controller_client import StatusPoller
from fullrank.net.status import RunState

pytestmark = pytest.mark.e2e

ITERATIONS = 12
SETTINGS = (
    f"iterations={ITERATIONS}",
    "collect.steps=9",  # episodes of 25 steps cross iterations
    "checkpoint.every=4",
    "checkpoint.keep=1",
    "stragglers.name=fixed_k",
    "stragglers.k=1",
    "stragglers.delay_s=0.05",
)

BEFORE_THE_FIRST = (
    "term.raised",
    "warmup.played",
    "transitions.played:1",
    "row.assigned:1",
    "row.arrived:1",
    "row.arrived:2",
    "journal.written:1",
)
"""Points before the first commit, of which each ends one term of the same run."""

WITHIN_ITERATIONS = (
    "transitions.played:3",
    "transitions.appended:2",
    "row.assigned:6",
    "row.arrived:5",
)
WITHIN_COMMITS = (
    "round.decided:2",
    "journal.written:2",
    "journal.synced:2",
    "update.applied:2",
)
AT_CHECKPOINTS = (
    "checkpoint.state_written:2",
    "checkpoint.complete:1",
    "checkpoint.renamed:1",
    "checkpoint.pruned:1",
    "journal.pruned:1",
)
AT_THE_END = (*("iteration.published:4",) * 2, "iteration.published:3", "journal.synced:1")
"""Each term publishes iterations before it ends; the last one ends with the last iteration."""
WHILE_REPEATING = ("journal.synced:7", "iteration.repeated:2", "iteration.repeated:3")


GAME = ("environment.name=two_step_game", "environment.agents=0")
VALUES = (
    *("algorithm.micro_batches=3", "algorithm.batch_size=7", "algorithm.target_every=5"),
    *("code.name=fractional", *GAME),
)
"""The target is a sum, and learners fetch their units' episodes."""

PASSES = ("algorithm.micro_batches=2", "algorithm.batch_size=2", "algorithm.epochs=3", *GAME)
UPDATES = 3
"""Updates of each collection by which on-policy teams learn."""
ONCE = ("algorithm.micro_batches=1", "algorithm.batch_size=2", "environment.copies=6", *GAME)
ACTORS = ("algorithm.micro_batches=2", *GAME)
TEAMS = {
    **{"maddpg": (), "qmix": VALUES, "qplex": VALUES, "masac": ACTORS},
    **{"ippo": PASSES, "mappo": PASSES, "pqn": PASSES, "coma": ONCE},
}

VALUES_POINTS = (
    "transitions.appended:3",
    "row.arrived:2",  # one of two rows is enough
    "update.applied:2",
    "checkpoint.complete:1",
)

PASSES_POINTS = (
    "transitions.played:1",
    "update.applied:2",
    "row.arrived:2",
    "transitions.appended:1",
    "journal.synced:3",
)
"""Points within a collection, and within the updates that pass over one."""

STORED = 5
"""Iterations that the disk takes before it hangs with the next one."""


def dies(controller: Forked) -> bool:
    """Wait until a failpoint has killed a controller; one that lives on is killed here."""
    try:
        return controller.wait() == -signal.SIGKILL
    finally:
        controller.kill()


class Services:
    """A replay service and learners that outlive the controllers of many runs."""

    def __init__(self, home: Path, team: str) -> None:
        self.home, self._references = home, dict[int, bytes]()
        self._team = (f"algorithm.name={team}", *TEAMS[team])
        self.updates = UPDATES if TEAMS[team] in (PASSES, ONCE) else 1
        self._addresses = [f"{name}.address={free_address()}" for name in ("controller", "replay")]
        self.replay = self.serve("replay", "--run-dir", str(home))
        self.learners = self.serve("learner", "--replicas", "4")

    def serve(
        self,
        name: str,
        *words: str,
        overrides: tuple[str, ...] = (),
        failpoint: str = "",
        before: Callable[[], None] = nothing,
    ) -> Forked:
        options = settings(*SETTINGS, *self._team, *self._addresses, *overrides)
        log, env = self.home / f"{name}.log", {VARIABLE: failpoint}
        return Forked(name, *options, *words, log=log, env=env, before=before)

    def controller(
        self,
        run_dir: Path,
        *,
        lag: int,
        failpoint: str = "",
        overrides: tuple[str, ...] = (),
        before: Callable[[], None] = nothing,
    ) -> Forked:
        """Start a controller."""
        return self.serve(
            "controller",
            "--run-dir",
            str(run_dir),
            overrides=(f"collect.lag={lag}", *overrides),
            failpoint=failpoint,
            before=before,
        )

    def log_of(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text()

    def run_to_the_end(self, run_dir: Path, *, lag: int, overrides: tuple[str, ...] = ()) -> None:
        """Run with a fault-free controller."""
        controller = self.controller(run_dir, lag=lag, overrides=overrides)
        try:
            wait_until((run_dir / "config.toml").exists, what="the controller starts")
            with StatusPoller(run_dir, config_of(run_dir)) as watch:
                wait_until(
                    lambda: watch.status().state is RunState.FINISHED, what="the run finishes"
                )
        finally:
            assert controller.stop() == 0

    def reference(self, *, lag: int) -> bytes:
        """Final state of a fault-free run."""
        if lag not in self._references:
            run_dir = self.home / f"reference-{lag}"
            self.run_to_the_end(run_dir, lag=lag)
            self._references[lag] = final_state(run_dir)
        return self._references[lag]


@pytest.fixture(scope="module")
def teams() -> Iterator[dict[str, Services]]:
    """The services of each team that a test has asked for."""
    running: dict[str, Services] = {}
    yield running
    for services in running.values():
        for process in (services.replay, services.learners):
            assert process.stop() == 0


@pytest.fixture
def services(
    request: pytest.FixtureRequest,
    teams: dict[str, Services],
    tmp_path_factory: pytest.TempPathFactory,
) -> Services:
    team = getattr(request, "param", "maddpg")
    if team not in teams:
        teams[team] = Services(tmp_path_factory.mktemp(team), team)
    return teams[team]


@pytest.mark.parametrize(
    ("services", "points", "lag"),
    [
        *(
            ("maddpg", points, 0)
            for points in (
                *((*BEFORE_THE_FIRST, *WITHIN_ITERATIONS), WITHIN_COMMITS, AT_CHECKPOINTS),
                *(AT_THE_END, WHILE_REPEATING),
            )
        ),
        ("qmix", VALUES_POINTS, 1),
        ("ippo", PASSES_POINTS, 0),
        *(
            pytest.param(team, points, lag, marks=pytest.mark.thorough)
            for points, lag, teams in (
                (VALUES_POINTS, 1, ("qplex", "masac")),
                (PASSES_POINTS, 0, ("mappo", "pqn", "coma")),
            )
            for team in teams
        ),
    ],
    indirect=["services"],
    ids=lambda value: value[-1] if isinstance(value, tuple) else str(value),
)
def test_a_controller_killed_anywhere_goes_on_to_the_same_bytes(
    services: Services, tmp_path: Path, points: tuple[str, ...], lag: int
) -> None:
    """Each point ends one term of the same run; counts begin anew with every term."""
    reference = services.reference(lag=lag)
    run_dir, published = tmp_path / "run", [0]
    overrides = ("checkpoint.every=2",) if points == AT_CHECKPOINTS else ()
    for point in points:
        killed = services.controller(run_dir, lag=lag, failpoint=point, overrides=overrides)
        assert dies(killed), point
        published.append(committed(run_dir))
    first = len(BEFORE_THE_FIRST)
    assert published[: first + 1] == [0] * (first + 1) or points[:first] != BEFORE_THE_FIRST
    assert published == [0, 4, 8, 11, 11] or points != AT_THE_END

    services.run_to_the_end(run_dir, lag=lag, overrides=overrides)
    assert final_state(run_dir) == reference
    assert digests(run_dir) == digests(services.home / f"reference-{lag}")
    told = records(run_dir)
    assert [record.iteration for record in told] == list(range(ITERATIONS))
    for term, count in enumerate(published):
        assert all(record.term <= term for record in told[:count])
    assert services.replay.poll() is services.learners.poll() is None
    history = read_history(run_dir, updates=services.updates)
    undisturbed = digests(services.home / f"reference-{lag}")
    assert violations(history, reference=undisturbed) == []


@pytest.mark.parametrize(
    ("point", "lost"),
    [(f"row.arrived:{3 * (STORED + 1) + 2}", False), (f"update.applied:{STORED + 2}", True)],
)
def test_an_iteration_that_is_not_durable_is_not_published_though_the_next_is_gathered(
    services: Services, tmp_path: Path, point: str, lost: bool
) -> None:
    """The controller dies in the iteration that is gathered while the disk takes the one before."""
    reference = services.reference(lag=0)
    run_dir, hung = tmp_path / "run", partial(hang_at_sync, STORED + 1)
    killed = services.controller(run_dir, lag=0, failpoint=point, before=hung)
    assert dies(killed)
    assert committed(run_dir) == STORED
    if lost:  # the machine lost its power, and the record with it
        newest = max((run_dir / "journal").iterdir())
        os.truncate(newest, newest.stat().st_size - 1)

    services.run_to_the_end(run_dir, lag=0)
    assert final_state(run_dir) == reference
    assert [record.iteration for record in records(run_dir)] == list(range(ITERATIONS))
    terms = [record.term for record in records(run_dir)]
    assert terms == [1] * (STORED + (not lost)) + [2] * (ITERATIONS - STORED - (not lost))
    undisturbed = digests(services.home / "reference-0")
    assert violations(read_history(run_dir), reference=undisturbed) == []


def test_a_run_that_is_not_exact_is_resumed_with_the_same_j_and_says_so(
    services: Services, tmp_path: Path
) -> None:
    nodes = "code.nodes=[1.0, 1.0001, 1.0002]"  # three units that are almost one
    inexact = ("code.name=vandermonde", nodes, "controller.inexact=commit", "checkpoint.every=100")
    run_dirs = [tmp_path / "first", tmp_path / "second"]
    killed = services.controller(
        run_dirs[0], lag=0, failpoint="iteration.published:5", overrides=inexact
    )
    assert dies(killed)
    published = digests(run_dirs[0])
    assert not any(record.exact for record in records(run_dirs[0]))
    shutil.copytree(run_dirs[0], run_dirs[1])
    identity = json.loads((run_dirs[1] / "run.json").read_text())
    identity["term"] += 1  # replay serves each term of a run once
    (run_dirs[1] / "run.json").write_text(json.dumps(identity))

    for run_dir in run_dirs:
        services.run_to_the_end(run_dir, lag=0, overrides=(*inexact, "iterations=5"))
        assert digests(run_dir) == published
    assert final_state(run_dirs[0]) == final_state(run_dirs[1])
    assert "iterations [0, 1, 2, 3, 4] are not exact: J is pinned" in services.log_of("controller")
