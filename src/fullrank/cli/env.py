"""``fullrank env``: what Fullrank understands of an environment."""

from dataclasses import asdict
from functools import partial
from time import perf_counter
from typing import Annotated, TypeAlias

import typer

from fullrank.algorithms.base import EnvironmentSpec, algorithms
from fullrank.cli.options import AgentsOption, ConfigOption, JsonOption, SetOption, resolve
from fullrank.cli.say import kept_stdout, say_json
from fullrank.cli.terminal import Terminal
from fullrank.common.errors import ConfigError
from fullrank.common.types import JSON
from fullrank.config.plugins import EPISODIC, PER_AGENT, spec_of
from fullrank.config.tree import RunConfig
from fullrank.environments import Continuous
from fullrank.environments.base import is_adapted
from fullrank.environments.capabilities import shares_reward
from fullrank.training.episodes import LONGEST
from fullrank.training.survey import AgentSurvey, EnvironmentSurvey, several_teams, sides_of, survey
from fullrank.wiring.plugins import environment_of

FLOAT_BYTES = 4
LARGE = 1e6
"""Magnitude from which values are worth a warning: networks learn best from values around one."""

app = typer.Typer(no_args_is_help=True)

EnvironmentArgument: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="ENVIRONMENT",
        help="A registered name, or package.module:factory; default: that of --config.",
    ),
]


@app.callback()
def _env() -> None:
    """Understand environments."""


@app.command()
def check(
    name: EnvironmentArgument = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    agents: AgentsOption = None,
    episodes: Annotated[int, typer.Option(help="Number of episodes to play.", min=2)] = 3,
    as_json: JsonOption = False,
) -> None:
    """Play an environment at random, and print what is understood of it.

    Spaces, masks, sides, deaths and returns, rewards, determinism under a seed, speed and size, and
    the algorithms that suit. An environment that cannot be used ends the command with code 3.
    """
    chosen = {"environment.name": name, "environment.agents": agents}
    settings = resolve(config, overrides, chosen).config
    with kept_stdout():
        spec, shared = spec_of(settings), _shares(settings)
        seen = survey(
            partial(environment_of, settings, copies=1),
            episodes=episodes,
            seed=0,
            clock=perf_counter,
        )
    facts = _facts(settings, spec, seen, shared=shared)
    if as_json:
        say_json(facts)
        return
    _show(facts, seen)


def _shares(config: RunConfig) -> bool:
    environment = environment_of(config, copies=1)
    environment.close()
    return shares_reward(environment)


def _facts(
    config: RunConfig, spec: EnvironmentSpec, seen: EnvironmentSurvey, *, shared: bool
) -> JSON:
    """All that is printed, by name."""
    foreign = is_adapted(config.environment.name)
    one_team = "" if shared else several_teams(spec.agents, seen.payment if foreign else None)
    warm_up = config.collect.warmup
    return {
        "environment": config.environment.name,
        "episodes": len(seen.lengths),
        "steps": [min(seen.lengths), max(seen.lengths)],
        "unended": seen.unended,
        "agents": [_agent_facts(agent) for agent in seen.agents],
        "masks": spec.masked,
        "forbidden": {"actions": _forbidden(seen), "of": sum(a.acted for a in seen.agents)},
        "sides": sides_of(spec.agents),
        "rewards": "shared" if shared else _payment(seen),
        "deterministic": not seen.differs,
        "difference": seen.differs,
        "seeds_differ": seen.seeded,
        "step_ms": 1e3 * seen.step_s,
        "row_bytes": FLOAT_BYTES * spec.layout.row_size,
        "warmup": {"transitions": warm_up, "minutes": warm_up * seen.step_s / 60},
        "algorithms": {name: _refusal(name, spec, one_team) for name in (*PER_AGENT, *EPISODIC)},
        "warnings": _warnings(seen),
    }


def _agent_facts(agent: AgentSurvey) -> JSON:
    seen = asdict(agent)
    spec = seen.pop("spec")
    return {name: spec[name] for name in ("name", "side", "observation_size", "action")} | seen


def _forbidden(seen: EnvironmentSurvey) -> int:
    """Number of uniformly random actions that masks would have forbidden."""
    return round(sum((1.0 - agent.permitted) * agent.acted for agent in seen.agents))


def _payment(seen: EnvironmentSurvey) -> str:
    if seen.payment.cancels:
        return "zero-sum"
    if seen.payment.alike:
        return "alike, of which a team learns the sum"
    return "by agent" if any(any(agent.rewards) for agent in seen.agents) else "all zero"


def _refusal(name: str, spec: EnvironmentSpec, one_team: str) -> str:
    """Say why an algorithm does not suit; empty if it does."""
    algorithm = algorithms.build(name)
    try:
        problem = algorithm.problem(spec)
    except ConfigError as error:
        return str(error)
    return one_team if problem.learns_team_reward else ""


def _warnings(seen: EnvironmentSurvey) -> list[str]:
    """Return what may go wrong in training, a line each."""
    lines = []
    if seen.differs:
        lines.append(
            f"one seed gives different episodes: {seen.differs}; draw only from the generator that "
            "reset(seed) seeds, and keep nothing over a reset"
        )
    if not seen.seeded:
        lines.append("all seeds give the same episode; draw from the seed that reset gets")
    for agent in seen.agents:
        for what, values in (("observations", agent.observed), ("rewards", agent.rewards)):
            if max(map(abs, values)) > LARGE:
                low, high = values
                lines.append(
                    f"{agent.spec.name}: {what} from {low:.3g} to {high:.3g}; scale them to around "
                    "one"
                )
    if seen.unended:
        lines.append(
            f"{seen.unended} episodes had not ended after {max(seen.lengths):,} steps; a return "
            f"is reported only where one ends; after {LONGEST:,} training on transitions cuts them "
            "off, and training on whole episodes refuses them"
        )
    if _payment(seen) == "all zero":
        lines.append("no reward was paid in random play; exploration may find none")
    return [*lines, *seen.ignored]


def _show(facts: JSON, seen: EnvironmentSurvey) -> None:
    low, high = facts["steps"]
    console = Terminal()
    title = f"{facts['environment']}: {facts['episodes']} random episodes of {low} to {high} steps"
    for line in (title, *map(_line, seen.agents), *_lines(facts)):
        console.print(line, soft_wrap=True, highlight=False)


def _line(agent: AgentSurvey) -> str:
    """Describe an agent."""
    spec, parts = agent.spec, [f"  {agent.spec.name} observes {agent.spec.observation_size}"]
    parts[0] += f" in {_range(agent.observed)}"
    if not isinstance(spec.action, Continuous):
        masked = "" if agent.permitted == 1.0 else f", of which {agent.permitted:.0%} are permitted"
        ones = [f"one of {size}" for size in spec.action.choices]
        parts.append(f"acts by {' and '.join(ones)}{masked}")
    else:
        bounds = min(spec.action.low), max(spec.action.high)
        parts.append(f"acts by {spec.action.size} in {_range(bounds)}")
    parts.append(f"is paid {_range(agent.rewards)} a step")
    if agent.terminated + agent.left:
        parts.append(f"ends early {agent.terminated + agent.left} times")
    if agent.came_back:
        parts.append(f"comes back {agent.came_back} times")
    return ", ".join(parts)


def _range(bounds: tuple[float, float]) -> str:
    low, high = (bound + 0.0 for bound in bounds)  # no negative zero
    return f"[{low:.3g}, {high:.3g}]"


def _lines(facts: JSON) -> list[str]:
    forbidden, warm_up = facts["forbidden"], facts["warmup"]
    suits = [name for name, refusal in facts["algorithms"].items() if not refusal]
    reasons: dict[str, list[str]] = {}
    for name, refusal in facts["algorithms"].items():
        if refusal:
            reasons.setdefault(refusal, []).append(name)
    masks = "masks: none, every action is permitted"
    if facts["masks"]:
        masks = (
            f"masks: obeyed; without them {forbidden['actions']:,} of {forbidden['of']:,} random "
            "actions would have been forbidden ones"
        )
    same = "the same seed gives the same episode, also in another instance"
    return [
        masks,
        f"sides: {', '.join(facts['sides'])}; rewards: {facts['rewards']}",
        f"determinism: {same if facts['deterministic'] else 'none'}",
        f"cost: {facts['step_ms']:.2g} ms a step, {facts['row_bytes']:,} bytes a transition in "
        f"replay, {60 * warm_up['minutes']:,.0f} s for a warm-up of {warm_up['transitions']:,}",
        f"suits: {', '.join(suits) or 'no built-in algorithm'}",
        *(f"not {', '.join(names)}: {reason}" for reason, names in reasons.items()),
        *(f"warning: {line}" for line in facts["warnings"]),
    ]
