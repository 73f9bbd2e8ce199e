"""Rehearsals: one run after the other under a seeded schedule of faults, in virtual time.

Controllers, rounds, membership, journal and checkpoints are the service's own; learners, replay and
wires are played. A schedule is its seed: it fails again as it failed.
"""

import asyncio
import json
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fullrank.common.durable import replace_text
from fullrank.common.errors import FullrankError
from fullrank.common.failpoints import Killed
from fullrank.common.failpoints import rehearse as arm
from fullrank.common.seeding import stream
from fullrank.config import RunConfig
from fullrank.runs.checkpoint import STATE, saved
from fullrank.runs.event_log import EventLog
from fullrank.wiring import environment_of, recipe_of
from fullrank_controller.rounds.auditor import RolledBack
from fullrank_faultlab.rehearsal.learner import Conduct, RehearsedLearner
from fullrank_faultlab.rehearsal.office import Office
from fullrank_faultlab.rehearsal.replay import RehearsedReplay
from fullrank_faultlab.rehearsal.wire import Line, Weather

CALM_S = 6.0
"""From then on nothing goes wrong any more, and the run must end."""
LIVE_S = 300.0
"""A run that has not ended so long after it, in virtual seconds, hangs."""
POINTS = (
    "term.raised",
    "warmup.played",
    "transitions.played",
    "transitions.appended",
    "rows.written",
    "row.assigned",
    "row.arrived",
    "round.decided",
    "journal.written",
    "journal.synced",
    "update.applied",
    "iteration.published",
    "iteration.repeated",
    "checkpoint.state_written",
    "checkpoint.complete",
    "checkpoint.renamed",
    "checkpoint.pruned",
    "journal.pruned",
)
BAD = 0
"""The one learner that may compute wrong things and whose messages may be changed."""
WRONG = (Conduct.WRONG_VECTOR, Conduct.WRONG_DIGEST)
HONEST = tuple(conduct for conduct in Conduct if conduct not in WRONG)


@dataclass(slots=True)
class Outcome:
    """How a schedule went."""

    seed: int
    injected: list[str] = field(default_factory=list)
    """What was done to the run, in order, with the virtual time."""
    wrong: list[str] = field(default_factory=list)
    """Violations; none is well."""


class Schedule:
    """A run and what happens to it.

    Args:
        config: The run's.
        run_dir: Empty.
        outcome: Its seed keys every draw; it is told what is done.
    """

    def __init__(self, config: RunConfig, run_dir: Path, outcome: Outcome) -> None:
        self._config, self._run_dir, self._outcome = config, run_dir, outcome
        self._draws = stream(outcome.seed, "misfortunes")
        self._rough = self._draws.random()
        """Share of what may go wrong."""
        self._replay = RehearsedReplay(
            stream(outcome.seed, "replay"), 0.2 * self._rough, EventLog(run_dir, "replay")
        )
        self._weathers = [self._weather(learner) for learner in range(config.learners)]
        self._learners: list[RehearsedLearner] = []
        self._office: Office | None = None
        self._serving: asyncio.Task[None] | None = None
        self._followed = asyncio.Event()
        self._offices: list[Office] = []
        self._lasting: set[asyncio.Task[None]] = set()
        self._calm = self._rotted = False
        replace_text(run_dir / "run.json", json.dumps({"run": "rehearsal"}))

    def _weather(self, learner: int) -> Weather:
        draws = stream(self._outcome.seed, "weather", learner)
        rough = self._rough * draws.random(3) * (draws.random(3) < 0.5)
        return Weather(
            draws=draws,
            doubled=0.1 * rough[0],
            swapped=0.1 * rough[1],
            flipped=0.1 * rough[2] if learner == BAD else 0.0,
        )

    def _conduct(self, learner: int) -> Conduct:
        draws = self._weathers[learner].draws
        if self._calm or draws.random() > 0.5 * self._rough:
            return Conduct.OK
        choices = tuple(Conduct) if learner == BAD else HONEST
        return choices[int(draws.integers(len(choices)))]

    async def play(self) -> str:
        """Until the run is finished; returns the digest of its parameters."""
        self._enlist()
        self._lasting.add(asyncio.create_task(self._befall()))
        try:
            async with asyncio.timeout(CALM_S + LIVE_S):
                while True:
                    if finished := await self._hold_office():
                        return finished
                    await asyncio.sleep(self._draws.exponential(0.3))
        except TimeoutError:
            where = self._office.position if self._office else "no controller"
            self._outcome.wrong.append(f"live: it does not end: {where}")
            return ""

    def _enlist(self) -> None:
        agents = environment_of(self._config, copies=1).agents
        recipe = recipe_of(self._config)
        for number in range(self._config.learners):
            learner = RehearsedLearner(
                dial=partial(self._dial, number),
                algorithm=recipe.make(agents, seed=self._config.seed, device="cpu"),
                replay=self._replay,
                conduct=partial(self._conduct, number),
                draws=stream(self._outcome.seed, "learner", number),
                event_log=EventLog(self._run_dir, f"learner-{number}"),
            )
            self._learners.append(learner)
            self._lasting.add(asyncio.create_task(learner.live()))

    def _dial(self, learner: int) -> Line | None:
        return self._office.dial(self._weathers[learner]) if self._office else None

    async def _hold_office(self) -> str:
        """A controller's time; the digest of its parameters if it finished the run."""
        if not self._calm and self._draws.random() < 0.8:
            arm(str(self._draws.choice(POINTS)), int(self._draws.integers(1, 5)))
        try:
            self._office = office = Office(self._config, self._run_dir, self._replay)
            self._offices.append(office)
            self._serving = asyncio.create_task(office.serve())
            self._followed.clear()
            followed = asyncio.create_task(self._followed.wait())
            await asyncio.wait({self._serving, followed}, return_when=asyncio.FIRST_COMPLETED)
            if self._followed.is_set() and not self._serving.done():
                self._serving.add_done_callback(_how_it_ended)
                office.forget_lock()
                return ""
            if not self._serving.cancelled():
                self._serving.result()
                return office.training.digest()
            self._say("controller killed")
            self._damage("")
        except Killed as point:
            self._say(f"controller killed at {point}")
            self._damage(str(point))
        except (FullrankError, RolledBack) as error:
            self._say(f"controller ended: {error}")
        finally:
            self._office = None
        await self._bury()
        return ""

    async def _bury(self) -> None:
        """What kill -9 leaves of controllers: nothing but their files."""
        for office in self._offices:
            office.vanish()
        self._offices.clear()
        this = asyncio.current_task()
        ghosts = [each for each in asyncio.all_tasks() - self._lasting if each is not this]
        for ghost in sorted(ghosts, key=_age):  # a set has another order each time
            ghost.cancel()
        await asyncio.gather(*ghosts, return_exceptions=True)

    def _damage(self, point: str) -> None:
        """What a crash of the machine may do besides."""
        if point == "journal.written":  # and not synced
            segments = (self._run_dir / "journal").iterdir()
            newest = max(segments, key=lambda path: path.stem.partition("-")[::-1])
            size = newest.stat().st_size - int(self._draws.integers(1, 40))
            os.truncate(newest, size)
            self._say(f"{newest.name} cut short")
        kept = saved(self._run_dir / "checkpoints")
        if len(kept) > 1 and not self._rotted and self._draws.random() < 0.2:
            self._rotted = True
            content = bytearray((kept[0] / STATE).read_bytes())
            content[int(self._draws.integers(len(content)))] ^= 1
            (kept[0] / STATE).write_bytes(content)
            self._say(f"checkpoint {kept[0].name} rotted")

    async def _befall(self) -> None:
        """Misfortunes at random times, then calm."""
        misfortunes = (self._kill, self._follow, *(self._cut, self._part) * 2)
        while True:
            await asyncio.sleep(self._draws.exponential(0.8))
            if asyncio.get_running_loop().time() > CALM_S:
                break
            misfortunes[int(self._draws.integers(len(misfortunes)))]()
        self._say("calm")
        self._calm = True
        arm("", 0)
        for weather in self._weathers:
            weather.clear()
        for learner in self._learners:
            learner.hang_up()

    def _kill(self) -> None:
        if self._serving is not None:
            self._serving.cancel()

    def _follow(self) -> None:
        """Another controller begins, and the one before does not know."""
        self._say("controller followed by another")
        self._followed.set()

    def _cut(self) -> None:
        number = int(self._draws.integers(len(self._learners)))
        self._say(f"learner {number} cut off")
        self._learners[number].hang_up()

    def _part(self) -> None:
        """No message to or from some learners for a while."""
        until = asyncio.get_running_loop().time() + self._draws.exponential(3.0)
        for number, weather in enumerate(self._weathers):
            if self._draws.random() < 0.5:
                self._say(f"learner {number} parted until {until:.1f}")
                weather.closed_until = until

    def _say(self, what: str) -> None:
        now = asyncio.get_running_loop().time()
        self._outcome.injected.append(f"{now:7.3f} {what}")


def _age(task: "asyncio.Task[object]") -> int:
    return int(task.get_name().removeprefix("Task-"))


def _how_it_ended(serving: "asyncio.Task[None]") -> None:
    """A deposed controller may end in any way; nobody asks."""
    if not serving.cancelled():
        serving.exception()
