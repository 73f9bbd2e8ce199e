"""The ``fullrank`` command: its verbs, and errors as one line and an exit status."""

import logging
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, NamedTuple

import typer

from fullrank import __version__
from fullrank.cli.say import say, start_service_log, starting
from fullrank.common.errors import FullrankError, expected
from fullrank.common.foreign import brief
from fullrank.common.imports import collecting_later


class Verb(NamedTuple):
    """A verb; its module is imported only when the verb is run."""

    panel: str
    """Heading of its group in ``fullrank --help``."""
    place: str
    """``module:attribute`` of a function or a Typer application."""
    help: str
    """Help text, one line."""


log = logging.getLogger("fullrank")

GROUP = "fullrank.verbs"
"""Entry-point group of further verbs, each a ``Verb``; their modules must import quickly."""

TRAIN = "Train and look"
CODES = "Codes and planning"
OPERATE = "Operate"
LINE = 2_000
"""Most characters of the line about an error."""

PANELS = (TRAIN, CODES, OPERATE, "Reproduce")
"""Groups of verbs, in the order of ``fullrank --help``; other groups follow, by name."""

VERBS = {
    "train": Verb(
        TRAIN, "fullrank.cli.train:train", "Train on services of this host, or by --local here."
    ),
    "env": Verb(TRAIN, "fullrank.cli.env:app", "Check what is understood of an environment."),
    "run": Verb(TRAIN, "fullrank.cli.run:app", "Submit, list, show, stop and resume runs."),
    "dashboard": Verb(TRAIN, "fullrank.cli.serve:dashboard", "Watch runs on a web page."),
    "eval": Verb(TRAIN, "fullrank.cli.evaluate:evaluate", "Evaluate a run's trained policies."),
    "compare": Verb(TRAIN, "fullrank.cli.compare:compare", "Compare the policies of several runs."),
    "bench": Verb(
        TRAIN, "fullrank.cli.compare:bench", "Train and compare all runs that a file lists."
    ),
    "plot": Verb(TRAIN, "fullrank.cli.plot:plot", "Plot a run's returns and round times."),
    "render": Verb(TRAIN, "fullrank.cli.render:render", "Render an episode as a GIF or MP4."),
    "export": Verb(TRAIN, "fullrank.cli.export:export", "Export policies as standalone files."),
    "checkpoint": Verb(TRAIN, "fullrank.cli.checkpoint:app", "List, verify and move checkpoints."),
    "verify": Verb(TRAIN, "fullrank.cli.verify:verify", "Recompute a run's committed iterations."),
    "codes": Verb(CODES, "fullrank.cli.codes:app", "List, check and plan codes."),
    "simulate": Verb(CODES, "fullrank.cli.simulate:simulate", "Compare codes in virtual time."),
    "serve": Verb(OPERATE, "fullrank.cli.serve:serve", "Run one service."),
    "config": Verb(OPERATE, "fullrank.cli.config:app", "Show the configuration and its origins."),
    "doctor": Verb(OPERATE, "fullrank.cli.doctor:doctor", "Check this machine, or a service."),
    "certs": Verb(OPERATE, "fullrank.cli.certs:app", "Manage the services' certificates."),
    "straggler": Verb(OPERATE, "fullrank.cli.straggler:app", "Show or change injected delays."),
}
"""Verbs of the library; installed packages add theirs by an entry point in ``GROUP``."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; the process ends with the error's exit status.

    Args:
        arguments: The words after ``fullrank``; by default those of the process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    completing = "_FULLRANK_COMPLETE" in os.environ
    try:
        if not completing:
            _say_what_starts(words)
        known = verbs()
        build(known, mounted=known if completing else words[:1])(args=words, prog_name="fullrank")
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except MemoryError as error:
        say(f"fullrank: not enough memory: {error}", error=True)
        raise SystemExit(FullrankError.exit_code) from None
    except Exception as error:
        cause = expected(error)
        if cause is None:
            raise
        say(f"fullrank: {brief(' '.join(str(cause).split()), limit=LINE)}", error=True)
        raise SystemExit(cause.exit_code) from None


def _say_what_starts(words: Sequence[str]) -> None:
    """Log that a service starts before its imports, which take minutes on a busy machine."""
    verb, name = (*words, "", "")[:2]
    if verb == "serve" and "--help" not in words:
        start_service_log(name)
        log.info("%s", starting(name))


def verbs() -> dict[str, Verb]:
    """All verbs by name, panel by panel; in a panel the library's come before plug-ins'."""
    known: dict[str, Verb] = VERBS | {
        point.name: point.load() for point in entry_points(group=GROUP)
    }
    return dict(sorted(known.items(), key=lambda item: _place(item[1].panel)))


def _place(panel: str) -> tuple[int, str]:
    """Sort key of a panel."""
    return (PANELS.index(panel), "") if panel in PANELS else (len(PANELS), panel)


def build(known: Mapping[str, Verb], *, mounted: Collection[str]) -> typer.Typer:
    """Build the application; a verb outside ``mounted`` appears only in help.

    Importing just the requested verb keeps help and errors quick.
    """
    app = typer.Typer(
        name="fullrank",
        help="Coded multi-agent reinforcement learning.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for name, verb in known.items():
        panel = verb.panel
        if name not in mounted:
            app.command(name, help=verb.help, rich_help_panel=panel)(_unmounted)
            continue
        module, _, attribute = verb.place.partition(":")
        with collecting_later():
            target = getattr(import_module(module), attribute)
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=name, help=verb.help, rich_help_panel=panel)
        else:
            app.command(name, short_help=verb.help, rich_help_panel=panel)(target)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"fullrank {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Coded multi-agent reinforcement learning on machines that are slow, flaky or preempted."""


def _unmounted() -> None:
    """Stand-in for a verb that appears in help and is not run."""
