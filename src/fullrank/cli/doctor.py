"""``fullrank doctor``: check that this machine can run Fullrank, or that a service is healthy."""

import importlib.metadata
import json
import os
import platform
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fullrank import __version__
from fullrank.cli.options import JsonOption
from fullrank.cli.runs import RUNS
from fullrank.cli.say import say
from fullrank.cli.terminal import Terminal
from fullrank.common.cores import usable_cores
from fullrank.common.errors import ServiceLost
from fullrank.config import load
from fullrank.config.plugins import problem_of
from fullrank.host.probe import TIMEOUT_S, probe
from fullrank.host.run_directory import is_address

_OPTIONAL = {
    "mpe2": "mpe",
    "lbforaging": "grids",
    "rware": "grids",
    "starlette": "dashboard",
    "onnxruntime": "onnx",
    "av": "video",
    "wandb": "wandb",
}
_SERVICES = {"collector", "controller", "dashboard", "learner", "local", "replay", "straggler"}
_LEAST_MEMORY_BYTES = 2 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Result of one check."""

    name: str
    ok: bool
    detail: str
    required: bool = True
    """True if Fullrank cannot work without it."""


def doctor(
    service: Annotated[
        str | None,
        typer.Argument(
            metavar="[HOST:PORT]",
            help="Ask the service with this health.address whether it is at work.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check that this machine can run Fullrank; exit status 1 if it cannot.

    With an address: print SERVING, or end with exit code 9 and the reason.
    """
    if service is not None:
        is_address(service)  # or there is no such port
        _ask(service)
        return
    checks = list(examine(RUNS))
    usable = all(check.ok for check in checks if check.required)
    if as_json:
        say(json.dumps({"usable": usable, "checks": [asdict(check) for check in checks]}))
    else:
        _show(checks, usable=usable)
    if not usable:
        raise typer.Exit(1)


def examine(runs: Path) -> Iterator[Check]:
    """All checks; ``runs`` is the parent of run directories."""
    yield Check(
        name="fullrank", ok=True, detail=f"{__version__} on Python {platform.python_version()}"
    )
    for requirement in _requirements():
        package, _, marker = requirement.partition(";")
        if not marker:
            name = re.split(r"[^\w.-]", package)[0]
            yield _package(name, remedy="reinstall fullrank", required=True)
    for package, extra in _OPTIONAL.items():
        yield _package(package, remedy=f"pip install 'fullrank[{extra}]'", required=False)
    for what, examination in (
        ("cores", _cores),
        ("memory", _memory),
        ("torch", _torch),
        ("placement", _placement),
        ("update kernel", _kernel),
        ("services", _services),
    ):
        yield _guarded(what, examination)
    yield _guarded("run directory", lambda: _writable(runs))


def _requirements() -> list[str]:
    """Requirements of the distribution; that of itself where it is not installed."""
    try:
        return importlib.metadata.requires("fullrank") or []
    except importlib.metadata.PackageNotFoundError:
        return ["fullrank"]


def _package(name: str, *, remedy: str, required: bool) -> Check:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name=name, ok=False, detail=f"missing: {remedy}", required=required)
    return Check(name=name, ok=True, detail=version, required=required)


def _guarded(name: str, examination: Callable[[], tuple[bool, str]]) -> Check:
    """Run a check; an exception is its result."""
    try:
        ok, detail = examination()
    except Exception as error:
        ok, detail = False, f"{type(error).__name__}: {error}"
    return Check(name=name, ok=ok, detail=detail)


def _cores() -> tuple[bool, str]:
    return True, f"{usable_cores()} usable, {platform.machine()}"


def _memory() -> tuple[bool, str]:
    import psutil  # here, because images of services have none

    memory = psutil.virtual_memory()
    free, total = memory.available / 2**30, memory.total / 2**30
    enough = memory.available >= _LEAST_MEMORY_BYTES
    hint = "" if enough else ": the defaults need 2 GiB"
    return enough, f"{free:.1f} of {total:.1f} GiB free{hint}"


def _torch() -> tuple[bool, str]:
    import torch  # here, because it takes seconds to import

    accelerator = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return True, f"{torch.get_num_threads()} threads, accelerator: {accelerator}"


def _placement() -> tuple[bool, str]:
    """Say what would run where: by the defaults, or by this environment's variables."""
    from fullrank.algorithms.devices import left_out, placed, visible

    config, devices = load(environ=os.environ).config, visible()
    place = partial(placed, devices=devices, accelerated=problem_of(config).accelerated)
    stepping, computing = config.controller.device, config.compute.device
    controller = place(stepping, setting="controller.device")
    around = max(1, devices, 1 + computing.count(",")) + 1
    learners = [place(computing, j) for j in range(around)]
    if {controller, *learners} == {"cpu"}:
        why = left_out(computing, accelerated=problem_of(config).accelerated)
        return True, "the controller and all learners on the CPU" + f"; {why}" * bool(why)
    listed = ", ".join(f"{j} on {device}" for j, device in enumerate(learners))
    return True, f"{devices} CUDA devices; the controller on {controller}, learner {listed}, ..."


def _kernel() -> tuple[bool, str]:
    import torch

    from fullrank.networks.fused import kernels

    kernel = kernels.choose(torch.device("cpu"), least_product=kernels.ONEDNN_LEAST)
    verdict = "true float32" if kernels.is_float32(kernel) else "products are not float32"
    instructions = torch.backends.cpu.get_cpu_capability()
    return kernels.is_float32(kernel), f"{kernel.name}, {instructions}: {verdict}"


def _services() -> tuple[bool, str]:
    installed = {point.name for point in importlib.metadata.entry_points(group="fullrank.services")}
    missing = sorted(_SERVICES - installed)
    if missing:
        return False, f"not installed: {', '.join(missing)}; reinstall fullrank"
    return True, ", ".join(sorted(installed))


def _writable(runs: Path) -> tuple[bool, str]:
    import psutil

    place = next(path for path in (runs.absolute(), *runs.absolute().parents) if path.is_dir())
    with tempfile.TemporaryFile(dir=place) as file:
        file.write(b"\0")
    free = psutil.disk_usage(str(place)).free / 2**30
    return True, f"{runs}/ can be written, {free:.1f} GiB free"


_OK, _MISSING, _ABSENT = ("ok", "green"), ("no", "red"), ("--", "yellow")
"""Marks of a check and their colours."""


def _show(checks: list[Check], *, usable: bool) -> None:
    console = Terminal(highlight=False)
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark, colour = _OK if check.ok else _MISSING if check.required else _ABSENT
        console.print(mark, style=colour, end="")
        console.print(f"  {check.name:{width}}  {check.detail}", soft_wrap=True)
    console.print("ready" if usable else "not usable: see the lines that say no", style="bold")


def _ask(address: str) -> None:
    """Print SERVING, or raise the reason."""
    try:
        found = probe(address, timeout_s=TIMEOUT_S)
    except OSError as error:
        raise ServiceLost(f"{address}: {error}") from None
    if found != "SERVING":
        raise ServiceLost(f"{address}: {found}")
    say(found)
