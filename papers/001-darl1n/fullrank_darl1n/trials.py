"""Training runs in one process: returns of a method against iterations and seconds.

Adversaries are frozen, as in the paper: policies of a MADDPG run in which both sides learnt. The
authors' adversaries are weights for M = 6, published separately from their code, and unknown for
larger teams. Here they are trained anew, with a different seed for each seed of the learners. Their
cell keeps the digests of the policies, and whoever needs these trains them again.
"""

import hashlib
import math
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from fullrank.algorithms import Algorithm, EnvironmentSpec
from fullrank.algorithms.actor_critic import Hyperparameters
from fullrank.algorithms.maddpg import MADDPG
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import derive
from fullrank.common.types import JSON, FloatArray, UnitIndex
from fullrank.config.tree import RunConfig
from fullrank.environments import AgentSpec, make_environment
from fullrank.local import LocalRun
from fullrank.training.evaluation import Act, Evaluation, Greedy, evaluate_and_close
from fullrank_darl1n import epc as epc  # registers the method
from fullrank_darl1n import replay as replay  # registers the method
from fullrank_darl1n.published import (
    ADVERSARIES,
    BASELINES,
    EPC,
    EPISODES,
    LEARNERS,
    LOCAL,
    Darl1nScale,
    Darl1nTask,
    Scheme,
    Size,
)
from fullrank_papers.cells import Cell, Later, Results, settings_of
from fullrank_papers.runs import SETTINGS, configured

POLICY, TARGET = "policy", "target_policy"
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
    scale: Darl1nScale
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
        wanted = self.scale.grown if self.method == EPC else wanted
        return min(wanted, self.scale.most(self.task, size))

    @property
    def every(self) -> int:
        """Iterations from one evaluation to the next."""
        return min(self.scale.every, self.task.every)

    @property
    def weight(self) -> float:
        """Approximate duration of the run, seconds, within a factor of three."""
        pace = 100_000 if self.method in LOCAL else 300_000
        seen = self.size.agents / 2 if self.changes.get("distance") == UNLIMITED else 1.0
        batch = max(self.scale.batch, 1_000)  # smaller ones leave the time of collection
        alone = seen * self.iterations * self.size.agents * batch / pace
        return (
            alone if self.scheme is None else alone * max(1.0, self.scheme.make_code().load.mean())
        )

    @property
    def adversaries(self) -> "Trial | None":
        """The trial that trains the adversaries; None if there are none or they learn here."""
        if self.both or not self.task.contest:
            return None
        return replace(self, method=ADVERSARIES, both=True, changes={}, scheme=None)

    def planned(self) -> Cell | Later:
        """The run as a cell, which needs the trial of its adversaries."""
        if self.adversaries is None:
            return self.cell({})
        needs = (self.adversaries.name,)
        return Later(name=self.name, needs=needs, make=self.cell, weight=self.weight)

    def world(self) -> dict[str, Any]:
        """Parameters of the training environment.

        DARL1N starts its samples with any velocity, since every transition is a first one.
        """
        given: dict[str, Any] = {"horizon": self.size.horizon}
        if not self.task.lattice:
            local = self.method in LOCAL
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
        scale = self.scale
        options = {
            **SETTINGS,
            "seed": derive(self.seed, "adversaries") if self.both else self.seed,
            "iterations": self.iterations,
            "learners": self.size.agents,
            "environment.name": self.task.name,
            "environment.agents": self.size.agents,
            **{f"environment.{key}": value for key, value in self.world().items()},
            "algorithm.name": self.method,
            "algorithm.batch_size": scale.batch,
            "collect.steps": self.size.horizon,
            "collect.warmup": WARM_UP * scale.batch,
        }
        if self.method in LOCAL:
            options["algorithm.evaluate_every"] = self.iterations  # evaluations are played here
        if self.method == EPC:  # as its authors collect: 100 transitions, too
            warmup = self.size.horizon * scale.batch
            options |= {"environment.copies": 25, "collect.steps": 4, "collect.warmup": warmup}
        if self.scheme is not None:
            options |= _coded(self.scheme)
        return configured(options=options)

    def cell(self, results: Results) -> Cell:
        """The run as a cell; ``results`` must hold the trial of its adversaries."""
        before, config = self.adversaries, self.config()
        learnt = None if before is None else results[before.name]
        return Cell(
            name=self.name,
            settings={
                "run": settings_of(config),
                "evaluated": self.evaluated(),
                "every": self.every,
                "both": self.both,
                "adversaries": digest_of(()) if learnt is None else learnt["adversaries"],
            },
            compute=partial(_train, self, config, None if learnt is None else learnt["policies"]),
            weight=self.weight,
            beside=True,
        )


_POLICIES: dict[str, list[str]] = {}
"""Policies of both sides that this process has trained, by their digest."""


def policies_again(sides: Trial, digest: str) -> list[str]:
    """Policies of both sides, adversaries first, trained again unless this process has them.

    Args:
        sides: The trial in which both sides learn.
        digest: Digest of the policies in its cell.

    Raises:
        ConfigError: The policies have other bits here.
    """
    if digest not in _POLICIES:
        _train(sides, sides.config(), None)
    if digest not in _POLICIES:
        raise ConfigError(
            f"{sides.name}: these policies have other bits than those of its cell, which another "
            "processor computed; remove the cell to train, and to meet, new ones"
        )
    return _POLICIES[digest]


def adversaries_in(policies: Sequence[str]) -> dict[int, str]:
    """The adversaries' policies by index; adversaries come first."""
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


def _train(trial: Trial, config: RunConfig, digest: str | None) -> JSON:
    """Train against frozen adversaries, if there are some, and keep policies of both sides."""
    before, adversaries = trial.adversaries, dict[int, str]()
    if before is not None and digest is not None:
        adversaries = adversaries_in(policies_again(before, digest))
    run = LocalRun(config, coded=trial.scheme is not None, frozen=adversaries)
    algorithm = run.training.algorithm
    seat(algorithm, adversaries)
    curve = curve_of(trial, run)
    if trial.both:
        policies = policies_of(algorithm, range(len(algorithm.problem.units)))
        curve["policies"] = digest_of(policies)
        curve["adversaries"] = digest_of(adversaries_in(policies).values())
        _POLICIES[curve["policies"]] = policies
    return curve


def curve_of(trial: Trial, run: LocalRun) -> JSON:
    """Train, and evaluate at the start and at intervals; evaluations do not count as seconds."""
    curve: JSON = {"iterations": [], "seconds": [], "returns": []}
    spent, iterations = 0.0, iter(run)
    with closing(run.training.collector):
        for number in range(trial.iterations + 1):
            if number:
                began = process_time()
                next(iterations)
                spent += process_time() - began
            if number % trial.every == 0:
                curve["iterations"].append(number)
                curve["seconds"].append(spent)
                curve["returns"].append(_return(trial, run, number))
    return curve


def _return(trial: Trial, run: LocalRun, number: int) -> float:
    """Mean return of the good side over episodes without exploration."""
    act = Greedy(run.training.algorithm.actor)
    played = trial.play(act, seed=derive(trial.seed, "learning_curve", number))
    side = "good" if trial.task.contest else "team"
    return float(played.side_returns[side].mean())


def policies_of(algorithm: Algorithm, units: Sequence[UnitIndex]) -> list[str]:
    """Policies of the units as text."""
    sections = {
        section.agents[0]: section.id
        for section in algorithm.problem.sections
        if section.role == POLICY
    }
    return [text_of(algorithm.parameters.view(sections[unit])) for unit in units]


def text_of(policy: FloatArray) -> str:
    """Little-endian float32 in base64."""
    return b64encode(policy.astype("<f4").tobytes()).decode()


def array_of(text: str) -> FloatArray:
    """The array encoded by ``text_of``."""
    return np.frombuffer(b64decode(text), "<f4").astype(np.float32)


def digest_of(policies: Iterable[str]) -> str:
    """Digest of texts in order."""
    return hashlib.blake2b("".join(policies).encode(), digest_size=16).hexdigest()


def seat(algorithm: Algorithm, policies: Mapping[UnitIndex, str]) -> None:
    """Replace policies and target policies of units by those of equal agents."""
    for section in algorithm.problem.sections:
        policy = policies.get(section.agents[0])
        if section.role in (POLICY, TARGET) and policy is not None:
            algorithm.parameters.view(section.id)[:] = array_of(policy)
    algorithm.parameters.written()


def side_of(agents: Sequence[AgentSpec], policies: Sequence[str], *, seed: int) -> Algorithm:
    """One side of a contest with given policies, of any method of the engine."""
    side = MADDPG(hidden=Hyperparameters().hidden).make(
        EnvironmentSpec(agents=tuple(agents)), seed=seed, device="cpu"
    )
    seat(side, dict(enumerate(policies)))
    return side
