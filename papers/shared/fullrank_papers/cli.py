"""``fullrank reproduce``: a paper's experiments by one resumable command."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from fullrank.cli.runs import make_directory
from fullrank.cli.terminal import Terminal
from fullrank.common.cores import usable_cores
from fullrank.common.errors import ConfigError
from fullrank_papers.cells import Cell, CellOrigin, CellStore, Later
from fullrank_papers.paper import Paper, missing

LONGEST_CELL_S = 7 * 24 * 3600.0
"""Age up to which earlier cells count towards the estimate of the remaining time."""


class PaperName(StrEnum):
    """A paper."""

    CODED_MADDPG = "coded-maddpg"
    DARL1N = "darl1n"
    CMARL = "cmarl"
    DMCAF = "dmcaf"
    MULTI_GPU = "multi-gpu"


class ScaleName(StrEnum):
    """Size of a reproduction."""

    SMOKE = "smoke"
    STANDARD = "standard"
    PAPER = "paper"


def paper_of(name: str) -> Paper[Any]:
    """The paper of a name."""
    found: Paper[Any] = import_module(f"fullrank_{name.replace('-', '_')}.paper").PAPER
    return found


def reproduce(
    paper: Annotated[PaperName, typer.Argument(help="The paper.")],
    scale: Annotated[ScaleName, typer.Option("--scale", help="How much of it.")] = ScaleName.SMOKE,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Default: papers/NNN-NAME/SCALE, with seeds SCALE-SEEDS."),
    ] = None,
    only: Annotated[
        str, typer.Option("--only", help="Parts, separated by commas; default: all of the paper.")
    ] = "",
    seeds: Annotated[
        str,
        typer.Option("--seeds", help="Seeds of what is learnt, 11,12,13; default: the scale's."),
    ] = "",
) -> None:
    """Reproduce a paper's experiments; what is computed is kept, and an interrupted run goes on.

    coded-maddpg [Wang21]: learning curves, time against stragglers, probabilities of decoding.
    darl1n [DARL1N]: what is learnt how soon; which codes survive what, and how noisily they decode.
    cmarl [CMARL]: what containers and others learn in equal time, waits at replay, collection.
    dmcaf [DMCAF]: speed of collection and updates, what waiting costs, hidden states, learning.
    multi-gpu: phases and overlap, ranks against one process, lag and micro-batches.
    """
    chosen = paper_of(paper)
    if scale not in chosen.scales:
        known = ", ".join(chosen.scales)
        raise ConfigError(f"--scale: {paper} has no scale {scale}; its scales are {known}")
    sizes, parts = chosen.scales[scale], _parts(only, chosen)
    if seeds:
        sizes = seeded(sizes, _seeds(seeds))
    home = Path("papers") / chosen.folder
    own = f"{scale}-{'-'.join(map(str, _seeds(seeds)))}" if seeds else str(scale)
    directory = output or home / own
    make_directory(directory)
    terminal, planned = Terminal(), chosen.planned(sizes)
    for part, line in missing(planned, CellStore(directory)).items():
        if part in parts:
            terminal.print(line, soft_wrap=True, highlight=False)
    weights = {cell.name: cell.weight for part in parts for cell in planned[part]}
    with _shown(scale, weights) as done:
        page = chosen.reproduce(
            scale,
            sizes,
            planned,
            directory,
            parts=parts,
            done=done,
            others=[home / other for other in chosen.scales if other != own],
            workers=usable_cores(),
        )
    terminal.print(f"claims, tables and pictures: {page}", soft_wrap=True, highlight=False)


MORE = {"beside_coma", "more_ends", "more_timed", "more_swept", "more_curves", "in_time"}
"""Tables of a scale with more seeds of some runs."""


def seeded(sizes: Any, seeds: tuple[int, ...]) -> Any:
    """A scale with these seeds alone."""
    known = {each.name for each in fields(sizes)}
    own: dict[str, Any] = dict.fromkeys(
        known & {"seeds", "contest_seeds", "more_seeds", "rate_draws", "teams"}, seeds
    )
    own |= {name: {} for name in known & MORE}
    return replace(sizes, **own)


def _seeds(named: str) -> tuple[int, ...]:
    """The seeds named in an option."""
    words = [word.strip() for word in named.split(",")]
    if not all(word.isdecimal() for word in words) or len(set(words)) < len(words):
        raise ConfigError(f"--seeds: {named!r} names no seeds; give different ones, as in 11,12,13")
    return tuple(map(int, words))


def _parts(only: str, paper: Paper[Any]) -> list[str]:
    """The parts named in an option, in their order; all if it names none."""
    names = [name for part in only.split(",") if (name := part.strip())]
    for name in names:
        if name not in paper.parts:
            known = ", ".join(paper.parts)
            raise ConfigError(f"--only: there is no part {name!r}; the parts are {known}")
    return [part for part in paper.parts if not names or part in names]


@contextmanager
def _shown(
    title: str, weights: dict[str, float]
) -> Iterator[Callable[[Cell | Later, CellOrigin], None]]:
    """Show a progress bar, and a line for each computed cell; yields the callback."""
    console = Terminal()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns,
        console=console,
        disable=not console.is_terminal,
        speed_estimate_period=LONGEST_CELL_S,
    ) as progress:
        left = sum(weights.values())
        bar = progress.add_task(title, total=left)

        def done(cell: Cell | Later, origin: CellOrigin) -> None:
            nonlocal left
            weight = weights.get(cell.name, 0.0)
            if origin is CellOrigin.KEPT:  # no time, so no pace to estimate from
                left -= weight
                progress.update(bar, total=left)
            else:
                progress.advance(bar, weight)
                console.print(f"{cell.name}: {_SAID[origin]}", soft_wrap=True, highlight=False)

        yield done


_SAID = {
    CellOrigin.COMPUTED: "computed",
    CellOrigin.DAMAGED: "its stored result was damaged; computed again",
    CellOrigin.CHANGED: "its stored result was of other settings; computed again",
}
