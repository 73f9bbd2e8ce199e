"""``fullrank export``: a run's policies as files that do not need Fullrank, with a model card."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum, auto
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from fullrank import __version__
from fullrank.algorithms.roles import RecurrentLayers
from fullrank.cli.card import Card
from fullrank.cli.options import EpisodesOption, InitialSeedOption, RunArgument, TrustOption
from fullrank.cli.policies import Trained, play, trained
from fullrank.cli.runs import find_run, runnable_config
from fullrank.cli.say import say
from fullrank.common.durable import rename
from fullrank.common.errors import FullrankError
from fullrank.config.tree import RunConfig
from fullrank.export import graph, parity, recurrent_graph, recurrent_tensors, tensors
from fullrank.export.policy import Form, Policy, PolicyFunction
from fullrank.export.recurrent import PlayStep, RecurrentPolicy
from fullrank.training.evaluation import Greedy

CARD = "README.md"
P = TypeVar("P", Policy, RecurrentPolicy)
R = TypeVar("R")


class Format(StrEnum):
    """File format of exported policies."""

    SAFETENSORS = auto()
    ONNX = auto()


_FORMS: Mapping[Format, Form[Policy, PolicyFunction]] = {
    Format.SAFETENSORS: tensors,
    Format.ONNX: graph,
}
_RECURRENT: Mapping[Format, Form[RecurrentPolicy, PlayStep]] = {
    Format.SAFETENSORS: recurrent_tensors,
    Format.ONNX: recurrent_graph,
}


def export(
    run: RunArgument,
    form: Annotated[Format, typer.Option("--format", help="File format.")] = Format.SAFETENSORS,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="New directory; default: <run>/export/<format>."),
    ] = None,
    episodes: EpisodesOption = 100,
    seed: InitialSeedOption = 1000,
    trust: TrustOption = None,
) -> None:
    """Write each agent's newest policy, checked against the run's, and a model card."""
    directory = find_run(run)
    config = runnable_config(directory, trust)
    folder = output or directory / "export" / form
    if folder.exists():
        raise FullrankError(f"{folder} exists already; choose another --output")
    policies = trained(directory, config)
    with _whole(folder) as partial:
        files, difference, usage = _write(
            policies, form, partial, about=_about(policies, directory, config)
        )
        acts = {"trained": Greedy(policies.algorithm.actor), "random": None}
        card = Card(
            run=directory.name,
            config=config,
            iterations=policies.iteration + 1,
            agents=policies.agents,
            files=files,
            usage=usage,
            difference=difference,
            played={
                name: play(config, act, episodes=episodes, seed=seed) for name, act in acts.items()
            },
            seed=seed,
        )
        (partial / CARD).write_text(card.markdown(), encoding="utf-8")
    say(folder)


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
) -> tuple[list[str], float, str]:
    """Write a file for each agent.

    Returns:
        Names of the files by agent, their largest difference from the run's policies, and
        instructions for reading them.
    """
    actor, agents = policies.algorithm.actor, policies.agents
    perceptrons, recurrent = list[Policy](), list[RecurrentPolicy]()
    for index, agent in enumerate(agents):
        layers = actor.policy(index)
        if isinstance(layers, RecurrentLayers):
            recurrent.append(RecurrentPolicy(agent=agent, layers=layers))
        else:
            perceptrons.append(Policy(agent=agent, layers=layers))
    files = [f"policy_{index:03d}.{form}" for index in range(len(agents))]
    paths = [folder / file for file in files]
    if recurrent:
        steps = _saved(recurrent, _RECURRENT[form], paths, about=about)
        difference = parity.check_recurrent(recurrent, steps, actor, seed=0)
        return files, difference, _RECURRENT[form].USAGE
    plays = _saved(perceptrons, _FORMS[form], paths, about=about)
    difference = parity.check(perceptrons, plays, Greedy(actor), seed=0)
    return files, difference, _FORMS[form].USAGE


def _saved(
    policies: Sequence[P], kind: Form[P, R], paths: Sequence[Path], *, about: Mapping[str, str]
) -> list[R]:
    """Write every policy and read it back."""
    for policy, path in zip(policies, paths, strict=True):
        facts = {**about, "agent": policy.agent.name, "side": policy.agent.side}
        kind.save(policy, path, facts=facts)
    return [kind.load(policy, path) for policy, path in zip(policies, paths, strict=True)]


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
            rename(partial, folder)
    except OSError as error:
        raise FullrankError(f"cannot write {folder}: {error.strerror}") from error
