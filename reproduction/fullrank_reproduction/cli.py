"""``fullrank reproduce``: a paper's experiments by one resumable command."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from fullrank.cli.processes import ensure_alive, services
from fullrank.cli.runs import make_directory
from fullrank.cli.terminal import Terminal
from fullrank.common.errors import ConfigError
from fullrank.config.toml import to_toml
from fullrank.config.tree import RunConfig
from fullrank.host.process import usable_cores
from fullrank.net.controller_client import StatusPoller
from fullrank.net.status import RunState
from fullrank.runs.record import METRICS, IterationRecord, follow, read_records
from fullrank_reproduction import coded_maddpg
from fullrank_reproduction.cells import Cell, CellOrigin
from fullrank_reproduction.cmarl import experiment as cmarl
from fullrank_reproduction.cmarl import scales as cmarl_scales
from fullrank_reproduction.cmarl.experiment import CmarlPart
from fullrank_reproduction.darl1n import experiment as darl1n
from fullrank_reproduction.darl1n import scales as darl1n_scales
from fullrank_reproduction.darl1n.scales import Darl1nPart
from fullrank_reproduction.dmcaf import experiment as dmcaf
from fullrank_reproduction.multi_gpu import experiment as multi_gpu
from fullrank_reproduction.scales import SCALES, ReportPart

POLL_S = 0.2
WATCH_S = 0.01
"""Period at which commits are looked for."""
LONGEST_CELL_S = 7 * 24 * 3600.0
"""Age up to which earlier cells count towards the estimate of the remaining time."""

Part = TypeVar("Part", bound=StrEnum)

app = typer.Typer(no_args_is_help=True)


class ScaleName(StrEnum):
    """Scale of the reproduction of [Wang21]."""

    SMOKE = "smoke"
    STANDARD = "standard"
    PAPER = "paper"


class Darl1nScaleName(StrEnum):
    """Scale of the reproduction of [DARL1N]."""

    SMOKE = "smoke"
    STANDARD = "standard"
    PAPER = "paper"


class DmcafScaleName(StrEnum):
    """Scale of the reproduction of [DMCAF]."""

    SMOKE = "smoke"
    STANDARD = "standard"


class CmarlScaleName(StrEnum):
    """Scale of the reproduction of [CMARL]."""

    SMOKE = "smoke"
    STANDARD = "standard"
    PAPER = "paper"


class MultiGpuScaleName(StrEnum):
    """Scale of the reproduction of multi-GPU MADDPG."""

    SMOKE = "smoke"
    PAPER = "paper"


@app.callback()
def _group() -> None:
    """Reproduce a paper's experiments."""


ScaleOption: TypeAlias = Annotated[ScaleName, typer.Option("--scale", help="How much of it.")]
OutputOption: TypeAlias = Annotated[
    Path | None, typer.Option("--output", help="Default: reproductions/NAME-SCALE.")
]


OnlyOption: TypeAlias = Annotated[
    str, typer.Option("--only", help="Parts, separated by commas; default: all of the paper.")
]
SeedsOption: TypeAlias = Annotated[
    int | None, typer.Option("--seeds", help="Seeds of the learning curves.", min=1)
]


@app.command("coded-maddpg")
def coded_maddpg_(
    scale: ScaleOption = ScaleName.SMOKE,
    output: OutputOption = None,
    only: OnlyOption = "",
    seeds: SeedsOption = None,
) -> None:
    """[Wang21]: learning curves, time against stragglers, probabilities of decoding.

    Parts: fig3 (learning curves), payload (learning through coded parameters), fig4 (times of
    Figs. 4 and 5, virtual), processes (the same on real services), codes.
    """
    directory = _directory("coded-maddpg", scale, output)
    chosen, parts = SCALES[scale], _parts(only, ReportPart)
    if seeds is not None:
        chosen = replace(chosen, budget=replace(chosen.budget, seeds=seeds))
    total = coded_maddpg.work(chosen, parts, train, time.process_time)
    with _shown(scale, total) as done:
        page = coded_maddpg.reproduce(
            chosen,
            directory,
            train=train,
            clock=time.process_time,
            done=done,
            parts=parts,
            others=_others("coded-maddpg", scale),
            workers=usable_cores(),
        )
    _tell(page)


def _parts(only: str, parts: type[Part]) -> tuple[Part, ...]:
    """The parts named in an option, in their order; all if it names none."""
    names = [name for part in only.split(",") if (name := part.strip())]
    for name in names:
        if name not in tuple(parts):
            known = ", ".join(parts)
            raise ConfigError(f"--only: there is no part {name!r}; the parts are {known}")
    return tuple(part for part in parts if not names or part in names)


def _others(name: str, scale: ScaleName) -> list[Path]:
    """Directories of the other scales, where equal results may be."""
    return [Path("reproductions") / f"{name}-{other}" for other in ScaleName if other != scale]


@app.command("darl1n")
def darl1n_(
    scale: Annotated[
        Darl1nScaleName, typer.Option("--scale", help="How much of it.")
    ] = Darl1nScaleName.SMOKE,
    output: OutputOption = None,
    only: OnlyOption = "",
    seeds: SeedsOption = None,
) -> None:
    """[DARL1N]: what is learnt how soon; which codes survive what, and how noisy they decode.

    Parts: codes (Lemma 1, Table V, Fig. 7), ising, food, grassland, battle (Tables I to IV), fig2
    to fig6, table6 (rewards with codes). Training runs use all cores.
    """
    directory = _directory("darl1n", scale, output)
    chosen, parts = darl1n_scales.SCALES[scale], _parts(only, Darl1nPart)
    if seeds is not None:
        chosen = replace(chosen, budget=replace(chosen.budget, seeds=seeds))
    for line in darl1n.plan(chosen, parts, directory):
        Terminal().print(line, soft_wrap=True, highlight=False)
    with _shown(scale, darl1n.work(chosen, parts)) as done:
        page = darl1n.reproduce(
            chosen,
            directory,
            clock=time.process_time,
            done=done,
            parts=parts,
            workers=usable_cores(),
        )
    _tell(page)


@app.command("dmcaf")
def dmcaf_(
    scale: Annotated[
        DmcafScaleName, typer.Option("--scale", help="How much of it.")
    ] = DmcafScaleName.SMOKE,
    output: OutputOption = None,
) -> None:
    """[DMCAF]: speed of collection and updates, what waiting costs, hidden states, learning."""
    directory = _directory("dmcaf", scale, output)
    chosen = dmcaf.SCALES[scale]
    with _shown(scale, dmcaf.work(chosen, watch)) as done:
        page = dmcaf.reproduce(chosen, directory, watch=watch, done=done)
    _tell(page)


@app.command("cmarl")
def cmarl_(
    scale: Annotated[
        CmarlScaleName, typer.Option("--scale", help="How much of it.")
    ] = CmarlScaleName.SMOKE,
    output: OutputOption = None,
    only: OnlyOption = "",
) -> None:
    """[CMARL]: what containers and others learn in equal time, waits at replay, collection.

    Parts: queues (waits at replay), services (collection), learning (in virtual time).
    """
    directory = _directory("cmarl", scale, output)
    chosen, parts = cmarl_scales.SCALES[scale], _parts(only, CmarlPart)
    with _shown(scale, cmarl.work(chosen, parts, observe)) as done:
        page = cmarl.reproduce(chosen, directory, observe=observe, done=done, parts=parts)
    _tell(page)


@app.command("multi-gpu")
def multi_gpu_(
    scale: Annotated[
        MultiGpuScaleName, typer.Option("--scale", help="How much of it.")
    ] = MultiGpuScaleName.SMOKE,
    output: OutputOption = None,
) -> None:
    """Multi-GPU MADDPG: phases and overlap, ranks against one process, lag and micro-batches."""
    directory = _directory("multi-gpu", scale, output)
    chosen, clock = multi_gpu.SCALES[scale], time.process_time
    with _shown(scale, multi_gpu.work(chosen, clock)) as done:
        page = multi_gpu.reproduce(chosen, directory, clock=clock, done=done)
    _tell(page)


def _directory(name: str, scale: str, output: Path | None) -> Path:
    directory = output or Path("reproductions") / f"{name}-{scale}"
    make_directory(directory)
    return directory


@contextmanager
def _shown(title: str, total: float) -> Iterator[Callable[[Cell, CellOrigin], None]]:
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
        bar, left = progress.add_task(title, total=total), total

        def done(cell: Cell, origin: CellOrigin) -> None:
            nonlocal left
            if origin is CellOrigin.KEPT:  # no time, so no pace to estimate from
                left -= cell.weight
                progress.update(bar, total=left)
            else:
                progress.advance(bar, cell.weight)
                console.print(f"{cell.name}: {_SAID[origin]}", soft_wrap=True, highlight=False)

        yield done


def _tell(page: Path) -> None:
    Terminal().print(f"claims, tables and pictures: {page}", soft_wrap=True, highlight=False)


_SAID = {
    CellOrigin.COMPUTED: "computed",
    CellOrigin.DAMAGED: "its stored result was damaged; computed again",
    CellOrigin.CHANGED: "its stored result was of other settings; computed again",
}


def watch(config: RunConfig) -> list[float]:
    """Train on local services; return when each iteration was seen to be committed, in seconds."""
    return [seen_s for seen_s, _ in observe(config)]


def observe(config: RunConfig) -> list[tuple[float, IterationRecord]]:
    """Train on local services; return iterations with when each was seen, in seconds."""
    seen: list[tuple[float, IterationRecord]] = []
    with tempfile.TemporaryDirectory(prefix="fullrank-") as scratch:
        run_dir = Path(scratch)
        (run_dir / "config.toml").write_text(to_toml(config))
        processes = services(run_dir, learners=config.learners, collectors=config.collectors.count)
        with processes as started:
            records = follow(run_dir / METRICS)
            while len(seen) < config.iterations:
                ensure_alive(started)
                committed = next(records)
                seen += [(time.monotonic(), record) for record in committed]
                time.sleep(WATCH_S)
    return seen


def train(config: RunConfig) -> Sequence[IterationRecord]:
    """Train on local services in a temporary run directory."""
    with tempfile.TemporaryDirectory(prefix="fullrank-") as scratch:
        run_dir = Path(scratch)
        (run_dir / "config.toml").write_text(to_toml(config))
        with (
            services(run_dir, learners=config.learners) as started,
            StatusPoller(run_dir, config) as watch,
        ):
            while watch.status().state is not RunState.FINISHED:
                ensure_alive(started)
                time.sleep(POLL_S)
        return read_records(run_dir / METRICS)
