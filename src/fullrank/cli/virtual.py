"""``fullrank simulate --learn``: a run that learns in virtual time, with its results."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.table import Table

from fullrank.cli.say import say_json
from fullrank.cli.terminal import Terminal
from fullrank.config.tree import RunConfig
from fullrank.planning.virtual_time import VirtualDurations

if TYPE_CHECKING:
    from fullrank.planning.virtual_course import VirtualHistory

EPISODES = 32
"""Episodes of an evaluation, as in the program of [CMARL]."""

LearnOption: TypeAlias = Annotated[
    bool, typer.Option("--learn", help="Train in virtual time: qmix, vdn or iql.")
]
EnvOption: TypeAlias = Annotated[
    str | None, typer.Option("--env", help="Environment of --learn: a registered name.")
]
UntilOption: TypeAlias = Annotated[
    float, typer.Option("--until", help="End of --learn, in virtual seconds.", min=0.0)
]
EveryOption: TypeAlias = Annotated[
    float,
    typer.Option("--every", help="Virtual seconds between evaluations of --learn.", min=0.001),
]
StepOption: TypeAlias = Annotated[
    float, typer.Option("--step-s", help="Step of an environment in --learn, in seconds.")
]
ActingOption: TypeAlias = Annotated[
    float, typer.Option("--acting-s", help="Choice of a collector's actions, in seconds.")
]
UpdateOption: TypeAlias = Annotated[
    float, typer.Option("--update-s", help="Update of centraliser or container, in seconds.")
]
CoresOption: TypeAlias = Annotated[
    int, typer.Option("--cores", help="Cores that all actors of --learn share; 0: one for each.")
]


def show_learning(
    config: RunConfig,
    durations: VirtualDurations,
    *,
    topology: str | None,
    until_s: float,
    every_s: float,
    as_json: bool,
) -> None:
    """Train in virtual time and print the evaluations.

    Raises:
        ConfigError: The algorithm does not learn from whole episodes, or something is inconsistent.
    """
    from fullrank.planning.virtual_learning import learn_in_virtual_time  # torch takes a second

    history = learn_in_virtual_time(
        config,
        durations,
        until_s=until_s,
        every_s=every_s,
        episodes=EPISODES,
    )
    if as_json:
        say_json(asdict(history))
        return
    Terminal().print(_table(config, topology, history))


def _table(config: RunConfig, topology: str | None, history: "VirtualHistory") -> Table:
    facts = history.facts
    caption = f"{facts['episodes']:.0f} episodes, {facts['iterations']:.0f} updates"
    if played := facts.get("played_bytes"):
        caption += (
            f"; {facts['travelled_bytes'] / played:.0%} of the bytes travelled, collectors waited "
            f"{facts['blocked']:.0%} of the time"
        )
    what = f"{config.algorithm.name} on {config.environment.name}, virtual time"
    table = Table(title=what if topology is None else f"{what}, {topology}", caption=caption)
    for column in ("time", "updates", "episodes", "env steps", "return", "won"):
        table.add_column(column, justify="right")
    for point in history.points:
        table.add_row(
            f"{point.time_s:g} s",
            str(point.iteration),
            str(point.episodes),
            str(point.env_steps),
            f"{point.return_mean:.2f}",
            "-" if point.win_rate is None else f"{point.win_rate:.0%}",
        )
    return table
