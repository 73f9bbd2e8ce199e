"""``fullrank export``: a run's policies as files that do not need Fullrank, with a model card."""

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
from fullrank.cli.options import EpisodesOption, InitialSeedOption, RunArgument
from fullrank.cli.policies import Trained, play, trained
from fullrank.cli.runs import find_run
from fullrank.common.errors import FullrankError
from fullrank.config.toml import read_config
from fullrank.config.tree import RunConfig
from fullrank.export import graph, parity, tensors
from fullrank.export.policy import Form, Policy
from fullrank.training.evaluation import Greedy

CARD = "README.md"


class Format(StrEnum):
    """File format of exported policies."""

    SAFETENSORS = auto()
    ONNX = auto()


_FORMS: Mapping[Format, Form] = {Format.SAFETENSORS: tensors, Format.ONNX: graph}


def export(
    run: RunArgument,
    form: Annotated[Format, typer.Option("--format", help="File format.")] = Format.SAFETENSORS,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="New directory; default: <run>/export/<format>."),
    ] = None,
    episodes: EpisodesOption = 100,
    seed: InitialSeedOption = 1000,
) -> None:
    """Write each agent's newest policy, checked against the run's, and a model card."""
    directory = find_run(run)
    config = read_config(directory)
    folder = output or directory / "export" / form
    if folder.exists():
        raise FullrankError(f"{folder} exists already; choose another --output")
    policies = trained(directory, config)
    with _whole(folder) as partial:
        files, difference = _write(
            policies, form, partial, about=_about(policies, directory, config)
        )
        acts = {"trained": Greedy(policies.algorithm.actor), "random": None}
        card = Card(
            run=directory.name,
            config=config,
            iterations=policies.iteration + 1,
            agents=policies.agents,
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


def _about(policies: Trained, directory: Path, config: RunConfig) -> Mapping[str, str]:
    """Metadata of every file; they suffice to make the environment again."""
    return {
        "fullrank": __version__,
        "run": directory.name,
        "iterations": str(policies.iteration + 1),
        "environment": config.environment.name,
        "parameters": json.dumps(dict(config.environment.params)),
    }


def _write(
    policies: Trained, form: Format, folder: Path, *, about: Mapping[str, str]
) -> tuple[list[str], float]:
    """Names of the written files by agent, and their largest difference from the run's policies."""
    exporting = [
        Policy(agent=agent, layers=policies.algorithm.actor.policy(index))
        for index, agent in enumerate(policies.agents)
    ]
    files = [f"policy_{index:03d}.{form}" for index in range(len(exporting))]
    kind, exported = _FORMS[form], []
    for policy, file in zip(exporting, files, strict=True):
        facts = {**about, "agent": policy.agent.name, "side": policy.agent.side}
        kind.save(policy, folder / file, facts=facts)
        exported.append(kind.load(policy, folder / file))
    return files, parity.check(exporting, exported, Greedy(policies.algorithm.actor), seed=0)


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """Yield a scratch directory that is renamed to ``folder`` when the block ends.

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
