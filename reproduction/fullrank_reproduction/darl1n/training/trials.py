"""Training runs in one process: returns of a method against iterations and seconds.

Adversaries are frozen, as in the paper: policies of a MADDPG run in which both sides learnt. The
authors' adversaries are weights for M = 6, published separately from their code, and unknown for
larger teams. Here they are trained anew, with a different seed for each seed of the learners.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fullrank.common.seeding import derive
from fullrank.common.types import JSON
from fullrank.config.layers import load
from fullrank.config.tree import RunConfig, as_tables
from fullrank.environments import make_environment
from fullrank.local import LocalRun
from fullrank.training.evaluation import Act, Evaluation, Greedy, evaluate_and_close
from fullrank_reproduction.cells import Cell, Clock
from fullrank_reproduction.darl1n.published import LEARNERS, Scheme
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.policies import digest_of, policies_of, seat
from fullrank_reproduction.darl1n.training.published import (
    ADVERSARIES,
    BASELINES,
    DARL1N,
    EPISODES,
    Darl1nTask,
    Size,
)
from fullrank_reproduction.wang21 import SETTINGS

UNLIMITED = 100.0
"""Distance within which all methods except DARL1N see others."""
WARM_UP = 5
"""Minibatches collected before the first iteration, as in the authors' code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One method on one team, from one seed."""

    task: Darl1nTask
    size: Size
    method: str
    budget: Darl1nBudget
    seed: int = 0
    both: bool = False
    """True if both sides learn; otherwise the good side learns against trained adversaries."""
    changes: Mapping[str, float | str] = field(default_factory=dict)
    """Changed parameters of the environment."""
    scheme: Scheme | None = None
    """Assigns agents to learners that draw samples of their own; else one process computes all."""

    @property
    def name(self) -> str:
        """Name of the trial's cell."""
        changes = [
            key + (value if isinstance(value, str) else f"{value:g}")
            for key, value in self.changes.items()
        ]
        changes += [] if self.scheme is None else [self.scheme.name]
        kind = "sides" if self.both else "train"
        parts = (kind, self.task.name, str(self.size.agents), self.method, *changes)
        return "-".join([*parts, f"seed{self.seed}"])

    @property
    def iterations(self) -> int:
        """Number of iterations."""
        size = self.size
        wanted = (self.method in BASELINES and size.baseline_iterations) or size.iterations
        wanted = size.adversary_iterations if self.both else wanted
        return min(wanted, self.budget.most(self.task, size))

    @property
    def every(self) -> int:
        """Iterations from one evaluation to the next."""
        return min(self.budget.every, self.task.every)

    @property
    def weight(self) -> float:
        """Approximate duration of the run, seconds, within a factor of three."""
        pace = 100_000 if self.method == DARL1N else 300_000
        seen = self.size.agents / 2 if self.changes.get("distance") == UNLIMITED else 1.0
        batch = max(self.budget.batch, 1_000)  # smaller ones leave the time of collection
        alone = seen * self.iterations * self.size.agents * batch / pace
        return (
            alone if self.scheme is None else alone * max(1.0, self.scheme.make_code().load.mean())
        )

    @property
    def adversaries(self) -> "Trial | None":
        """The trial that trains the adversaries; None if there are none or they learn here."""
        if self.both or not self.task.contest:
            return None
        return Trial(
            task=self.task,
            size=self.size,
            method=ADVERSARIES,
            budget=self.budget,
            seed=self.seed,
            both=True,
        )

    def ready(self, results: Results) -> bool:
        """True if the adversaries are trained, or there are none."""
        return self.adversaries is None or self.adversaries.name in results

    def met(self, results: Results) -> dict[int, str]:
        """Policies of the trained adversaries, by index; ``results`` must hold their trial."""
        before = self.adversaries
        return {} if before is None else adversaries_in(results[before.name])

    def world(self) -> dict[str, Any]:
        """Parameters of the training environment.

        DARL1N starts its samples with any velocity, since every transition is a first one.
        """
        given: dict[str, Any] = {"horizon": self.size.horizon}
        if not self.task.lattice:
            local = self.method == DARL1N
            given |= {"moving_start": local, **({} if local else {"distance": UNLIMITED})}
        return {**given, **self.changes}

    def evaluated(self) -> dict[str, Any]:
        """Parameters of the evaluation environment: whole team, start at rest, one step longer."""
        still = {} if self.task.lattice else {"moving_start": False}
        return {**self.world(), **still, "extra_step": True}

    def play(self, act: Act, *, seed: int) -> Evaluation:
        """Play the episodes of an evaluation."""
        environment = make_environment(
            self.task.name, agents=self.size.agents, copies=EPISODES, **self.evaluated()
        )
        return evaluate_and_close(environment, act, EPISODES, seed)

    def config(self) -> RunConfig:
        """Configuration of the run."""
        budget = self.budget
        options = {
            **SETTINGS,
            "seed": derive(self.seed, "adversaries") if self.both else self.seed,
            "iterations": self.iterations,
            "learners": self.size.agents,
            "environment.name": self.task.name,
            "environment.agents": self.size.agents,
            **{f"environment.{key}": value for key, value in self.world().items()},
            "algorithm.name": self.method,
            "algorithm.batch_size": budget.batch,
            "collect.steps": self.size.horizon,
            "collect.warmup": WARM_UP * budget.batch,
        }
        if self.method == DARL1N:
            options["algorithm.evaluate_every"] = self.iterations  # evaluations are played here
        if self.scheme is not None:
            options |= _coded(self.scheme)
        return load(options=options).check().config

    def cell(self, results: Results, clock: Clock) -> Cell:
        """The run as a cell; ``results`` must hold the trial of its adversaries."""
        policies, config = self.met(results), self.config()
        return Cell(
            name=self.name,
            settings={
                "run": as_tables(config),
                "evaluated": self.evaluated(),
                "every": self.every,
                "both": self.both,
                "adversaries": digest_of(policies.values()),
            },
            compute=partial(_train, self, config, policies, clock),
            weight=self.weight,
            beside=True,
        )


def adversaries_in(result: JSON) -> dict[int, str]:
    """The adversaries' policies by index; adversaries come first."""
    policies = result["policies"]
    return dict(enumerate(policies[: len(policies) // 2]))


def _coded(scheme: Scheme) -> dict[str, Any]:
    """Learners that answer in random order, and commits at rank M, as in the paper."""
    return {
        "learners": LEARNERS,
        "code.name": scheme.code,
        **{f"code.{key}": value for key, value in scheme.params.items()},
        "algorithm.data": "independent",
        "algorithm.max_variance": math.inf,
        "stragglers.name": "exponential",
        "stragglers.mean_s": 1.0,
    }


def _train(trial: Trial, config: RunConfig, adversaries: Mapping[int, str], clock: Clock) -> JSON:
    """Train, and evaluate at the start and at intervals; evaluations do not count as seconds."""
    run = LocalRun(config, coded=trial.scheme is not None, frozen=adversaries)
    algorithm = run.training.algorithm
    seat(algorithm, adversaries)
    curve: JSON = {"iterations": [], "seconds": [], "returns": []}
    spent, iterations = 0.0, iter(run)
    try:
        for number in range(trial.iterations + 1):
            if number:
                began = clock()
                next(iterations)
                spent += clock() - began
            if number % trial.every == 0:
                curve["iterations"].append(number)
                curve["seconds"].append(spent)
                curve["returns"].append(_return(trial, run, number))
    finally:
        run.training.collector.close()
    if trial.both:
        curve["policies"] = policies_of(algorithm, range(len(algorithm.problem.units)))
    return curve


def _return(trial: Trial, run: LocalRun, number: int) -> float:
    """Mean return of the good side over episodes without exploration."""
    act = Greedy(run.training.algorithm.actor)
    played = trial.play(act, seed=derive(trial.seed, "learning_curve", number))
    side = "good" if trial.task.contest else "team"
    return float(played.side_returns[side].mean())
