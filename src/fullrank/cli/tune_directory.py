"""A tune: runs with several values of a setting, of which the better half goes on at each rung.

Each run is a whole run directory inside the tune's. ``tune.json`` holds the plan, the returns of
every evaluation and the decisions so far; what is missing there is trained when the tune goes on.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Self

import numpy as np
from pydantic import TypeAdapter

from fullrank.cli.outcome import SEED, episodes_of, outcome
from fullrank.cli.policies import play, policies_in
from fullrank.cli.processes import ensure_idle, start, stop
from fullrank.cli.running import run_on_services
from fullrank.cli.runs import adopt, run_name, runnable_config
from fullrank.cli.say import say
from fullrank.cli.terminal import Terminal
from fullrank.common.durable import replace_bytes, replace_text
from fullrank.common.errors import FullrankError, Malformed
from fullrank.common.foreign import TEXT, read_regular
from fullrank.common.schema import validated
from fullrank.common.text import decimal
from fullrank.config.toml import to_toml
from fullrank.config.tree import RunConfig
from fullrank.rpc.lock import lock_launch, lock_run
from fullrank.rpc.process import interrupting
from fullrank.runs.checkpoint import load
from fullrank.runs.halving import FILE, Rung, averaged, halve
from fullrank.runs.identity import CHECKPOINTS
from fullrank.training.evaluation import Greedy


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneFacts:
    """The content of ``tune.json``."""

    setting: str
    """Dotted key of the setting."""
    values: tuple[str, ...]
    rungs: tuple[int, ...]
    iterations: int
    """Iterations of a whole run."""
    side: str | None = None
    """The side whose return decides; None: all agents together."""
    evaluations: dict[str, dict[int, float]] = field(default_factory=dict)
    """Mean returns by value and iteration."""
    decisions: list[Rung[str]] = field(default_factory=list)
    chosen: str | None = None
    """The value of the run that has trained to the end."""
    cost: float | None = None
    """Iterations of all runs, in multiples of those of one whole run."""


_FACTS = TypeAdapter(TuneFacts)


class Tune:
    """Trains the runs of a tune, and decides between them.

    Args:
        directory: The tune's directory.
        facts: Its facts.
        configs: Configuration of each value's run.
        local: True to train each in one process, without services.
    """

    def __init__(
        self, directory: Path, facts: TuneFacts, configs: Mapping[str, RunConfig], *, local: bool
    ) -> None:
        self._directory, self._facts = directory, facts
        self._configs, self._local = configs, local

    @classmethod
    def open(cls, directory: Path, *, local: bool, trusted: Collection[str] | None = None) -> Self:
        """The tune in a directory.

        Raises:
            FullrankError: Its facts or a run's configuration cannot be read.
        """
        path = directory / FILE
        try:
            facts = validated(_FACTS, read_regular(path, TEXT.size), origin=FILE)
        except Malformed as error:
            raise Malformed(
                f"{path} is damaged ({error}); tune anew in another directory"
            ) from error
        configs = {
            value: runnable_config(directory / run_name(facts.setting, value), trusted)
            for value in facts.values
        }
        return cls(directory, facts, configs, local=local)

    def run(self) -> None:
        """Halve from rung to rung, and train the run that is left to the end.

        Raises:
            KeyboardInterrupt: It was told to stop, and can go on.
            FullrankError: A run failed, or a return is not finite.
        """
        with lock_run(self._directory), interrupting():
            try:
                self._run()
            except KeyboardInterrupt:
                option = "--local " if self._local else ""
                say(f"stopped; continue with: fullrank resume {option}{self._directory}")
                raise

    def _run(self) -> None:
        facts, decisions = self._facts, list[Rung[str]]()
        say(f"tune {self._directory}: {facts.setting} = {', '.join(facts.values)}")
        self._write()
        for rung in halve(
            facts.values, facts.rungs, iterations=facts.iterations, score=self._score
        ):
            decisions.append(rung)
            self._facts = replace(self._facts, decisions=decisions)
            self._write()
            say(_said(rung))
        (chosen,), cost = rung.kept, rung.whole_cost(facts.iterations)
        if facts.chosen is None:
            self._train(chosen, facts.iterations)
        self._facts = replace(self._facts, chosen=chosen, cost=cost)
        self._write()
        run = self._run_of(chosen)
        say(f"chosen: {facts.setting} = {chosen}, {run}; {cost:.2f} times the cost of one run")
        for line in outcome(run, self._configs[chosen]):
            say(line)

    def _write(self) -> None:
        content = _FACTS.dump_json(self._facts, indent=2)
        replace_bytes(self._directory / FILE, content + b"\n")

    def _run_of(self, value: str) -> Path:
        return self._directory / run_name(self._facts.setting, value)

    def _score(self, value: str, rung: int) -> float:
        """Mean return of the last evaluations before a rung, to which the run trains if need be."""
        wanted = averaged(rung, every=self._configs[value].checkpoint.every)
        known = self._known(value)
        there = [number for number in wanted if self._checkpoint(value, number).is_dir()]
        self._evaluate(value, there)  # before a run that goes on replaces them
        if not known.keys() >= set(wanted):
            self._train(value, rung)
            self._evaluate(value, wanted)
        return fmean(known[number] for number in wanted)

    def _known(self, value: str) -> dict[int, float]:
        return self._facts.evaluations.setdefault(value, {})

    def _checkpoint(self, value: str, iterations: int) -> Path:
        return self._run_of(value) / CHECKPOINTS / f"{iterations - 1:06d}"

    def _evaluate(self, value: str, numbers: Iterable[int]) -> None:
        """Play greedily the policies that are not evaluated yet, after numbers of iterations."""
        config, known, side = self._configs[value], self._known(value), self._facts.side
        for number in numbers:
            if number in known:
                continue
            policies = policies_in(load(self._checkpoint(value, number)), config)
            act = Greedy(policies.algorithm.actor)
            played = play(config, act, episodes=episodes_of(config), seed=SEED)
            returns = played.returns if side is None else played.side_returns[side]
            if not np.isfinite(returns).all():
                raise FullrankError(
                    f"{self._run_of(value)} returns {returns.mean()} at iteration {number}, which "
                    f"cannot be compared; tune {self._facts.setting} without {value}"
                )
            known[number] = float(returns.mean())
            self._write()

    def _train(self, value: str, iterations: int) -> None:
        """Train a run until it has so many iterations."""
        run, config = self._run_of(value), replace(self._configs[value], iterations=iterations)
        say(f"training {run} to iteration {iterations}")
        with lock_launch(run):
            adopt(run)
            replace_text(run / "config.toml", to_toml(config))
            if self._local:
                _train_in_one_process(run)
            else:
                run_on_services(run, config, Terminal(quiet=True))


def _train_in_one_process(run: Path) -> None:
    """Train in a process of its own: it takes the stop signals for as long as it lives."""
    ensure_idle(run)
    service = start("local", run, ["--until-finished"])
    try:
        if service.process.wait() and (failure := service.failure()) is not None:
            raise failure
    finally:
        stop([service])


def _said(rung: Rung[str]) -> str:
    returns = ", ".join(f"{value} returns {decimal(mean)}" for value, mean in rung.returns.items())
    return (
        f"iteration {rung.iteration}: {returns}; goes on: {', '.join(rung.kept)}; cost so far: "
        f"{rung.cost:.2f} runs"
    )
