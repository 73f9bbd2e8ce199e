"""The ``fullrank`` command: its verbs, and how errors become one line and an exit status."""

import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Annotated

import typer

from fullrank import __version__
from fullrank.errors import FullrankError

VERBS = {
    "train": ("fullrank.cli.train:train", "Train a team on local services."),
    "resume": ("fullrank.cli.train:resume", "Go on with a run from its newest checkpoint."),
    "eval": ("fullrank.cli.evaluate:evaluate", "Play episodes with a run's trained policies."),
    "compare": ("fullrank.cli.compare:compare", "Compare the policies of several runs."),
    "simulate": ("fullrank.cli.simulate:simulate", "Compare codes in virtual time."),
    "reproduce": ("fullrank.cli.reproduce:app", "Run a paper's experiments and judge its claims."),
    "status": ("fullrank.cli.status:status", "Say where a run stands and what takes its time."),
    "top": ("fullrank.cli.top:top", "Watch a run live: learners, round timeline, returns."),
    "dashboard": ("fullrank.cli.dashboard:dashboard", "Show runs live on a page, and compare."),
    "plot": ("fullrank.cli.plot:plot", "Draw a run's returns and round times."),
    "render": ("fullrank.cli.render:render", "Draw an episode of a run's policies as GIF or MP4."),
    "export": ("fullrank.cli.export:export", "Write a run's policies for use without Fullrank."),
    "checkpoint": ("fullrank.cli.checkpoint:app", "List, verify and compare checkpoints."),
    "codes": ("fullrank.cli.codes:app", "List codes, show one, and check what it tolerates."),
    "config": ("fullrank.cli.config:app", "Show the effective configuration and its origins."),
    "chaos": ("fullrank.cli.chaos:chaos", "Rehearse runs under faults, in virtual time."),
    "doctor": ("fullrank.cli.doctor:doctor", "Check that this machine can run Fullrank."),
    "health": ("fullrank.cli.health:health", "Ask whether a service is at work."),
    "compose": ("fullrank.cli.compose:app", "Write Compose files with a sidecar per learner."),
    "straggler": ("fullrank.cli.straggler:app", "Read and change what a sidecar injects."),
    "certs": ("fullrank.cli.certs:app", "Make the certificates of a run's services."),
    "serve": ("fullrank.cli.serve:serve", "Run one service: controller, learner, ..."),
}
"""Verb to where it is, a function or a group of commands, and its line of help.

Only the verb that is asked for is imported, so that help and errors are quick.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; the process ends with the error's exit status.

    Args:
        arguments: The words after ``fullrank``; those of the process if left out.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    completing = "_FULLRANK_COMPLETE" in os.environ
    try:
        build(mounted=VERBS if completing else words[:1])(args=words, prog_name="fullrank")
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except Exception as error:
        expected = _expected(error)
        if expected is None:
            raise
        print("fullrank:", " ".join(str(expected).split()), file=sys.stderr)
        raise SystemExit(expected.exit_code) from None


def build(*, mounted: Collection[str]) -> typer.Typer:
    """The application; a verb outside ``mounted`` is known by its name and help line alone."""
    app = typer.Typer(
        name="fullrank",
        help="Coded multi-agent reinforcement learning.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for verb, (place, line) in VERBS.items():
        if verb not in mounted:
            app.command(verb, help=line)(_unmounted)
            continue
        module, _, attribute = place.partition(":")
        target = getattr(import_module(module), attribute)
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=verb, help=line)
        else:
            app.command(verb, help=line)(target)
    return app


def _expected(error: BaseException) -> FullrankError | None:
    """The error to report if every part of ``error`` was raised on purpose."""
    if not isinstance(error, BaseExceptionGroup):
        return error if isinstance(error, FullrankError) else None
    parts = [_expected(part) for part in error.exceptions]
    return None if None in parts else parts[0]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fullrank {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Coded multi-agent reinforcement learning on machines that are slow, flaky or preempted."""


def _unmounted() -> None:
    """Stands for a verb in help."""
