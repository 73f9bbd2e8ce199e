"""``fullrank export``: a run's policies as files that need no Fullrank, with a model card."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum, auto
from pathlib import Path
from typing import Annotated

import typer

from fullrank import __version__
from fullrank.cli.card import Card
from fullrank.cli.policies import Trained, play, trained
from fullrank.cli.runs import find_run
from fullrank.common.errors import FullrankError
from fullrank.config import RunConfig, read_config
from fullrank.export import graph, parity, tensors
from fullrank.export.policy import Form, Policy

CARD = "README.md"


class Format(StrEnum):
    """What the policies are written as."""

    SAFETENSORS = auto()
    ONNX = auto()


_FORMS: Mapping[Format, Form] = {Format.SAFETENSORS: tensors, Format.ONNX: graph}


def export(
    run: Annotated[Path, typer.Argument(help="Run directory, or its name below runs/.")],
    form: Annotated[Format, typer.Option("--format", help="What to write.")] = Format.SAFETENSORS,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Directory to make; default: <run>/export/<format>."),
    ] = None,
    episodes: Annotated[int, typer.Option(help="Episodes played for the card.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="Fixes their initial states.", min=0)] = 1000,
) -> None:
    """Write the newest policy of each agent, checked against the run's, and a model card."""
    directory = find_run(run)
    config = read_config(directory)
    folder = output or directory / "export" / form
    if folder.exists():
        raise FullrankError(f"{folder} exists already; choose another --output")
    found = trained(directory, config)
    with _whole(folder) as partial:
        files, difference = _write(found, form, partial, about=_about(found, directory, config))
        acts = {"trained": found.algorithm.act_greedily, "random": None}
        card = Card(
            run=directory.name,
            config=config,
            iterations=found.iteration + 1,
            agents=found.agents,
            files=files,
            usage=_FORMS[form].USAGE,
            difference=difference,
            played={
                name: play(config, act, episodes=episodes, seed=seed) for name, act in acts.items()
            },
            seed=seed,
        )
        (partial / CARD).write_text(card.markdown(), encoding="utf-8")
    print(folder)


def _about(found: Trained, directory: Path, config: RunConfig) -> Mapping[str, str]:
    """What every file says of itself: enough to make the environment again."""
    return {
        "fullrank": __version__,
        "run": directory.name,
        "iterations": str(found.iteration + 1),
        "environment": config.environment.name,
        "parameters": json.dumps(dict(config.environment.params)),
    }


def _write(
    found: Trained, form: Format, folder: Path, *, about: Mapping[str, str]
) -> tuple[list[str], float]:
    """The files by agent, and how far they are from the run's policies."""
    policies = [
        Policy(agent=agent, layers=found.algorithm.policy(unit))
        for unit, agent in enumerate(found.agents)
    ]
    files = [f"policy_{unit:03d}.{form}" for unit in range(len(policies))]
    kind, exported = _FORMS[form], []
    for policy, file in zip(policies, files, strict=True):
        facts = {**about, "agent": policy.agent.name, "side": policy.agent.side}
        kind.save(policy, folder / file, facts=facts)
        exported.append(kind.load(policy, folder / file))
    return files, parity.check(policies, exported, found.algorithm.act_greedily, seed=0)


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """A directory to write to that becomes ``folder`` when all is written.

    Raises:
        FullrankError: It cannot be made or written to.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-") as scratch:
            partial = Path(scratch) / folder.name
            partial.mkdir()
            yield partial
            partial.rename(folder)
    except OSError as error:
        raise FullrankError(f"cannot write {folder}: {error.strerror}") from error
