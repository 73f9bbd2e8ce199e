"""Devices: names of them, which process of a host has which, and parameters on another one."""

import importlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from fullrank.algorithms.roles import Algorithm, Parameters
from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray, UnitIndex

COMPUTE = "compute.device"
"""Setting that places updates."""

_NAMES = re.compile(r"auto|cpu|cuda|cuda:\d+(,cuda:\d+)*")


def visible() -> int:
    """Return the number of CUDA devices that this process sees."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


@cache
def lack_of_kernels() -> str:
    """Return why Triton can compile no kernel here, and the remedy; empty if it can."""
    try:
        importlib.import_module("triton")
    except ImportError as error:
        return f"Triton cannot be imported ({error}): install triton"
    if not (os.environ.get("CC") or shutil.which("clang") or shutil.which("gcc")):
        return "Triton finds no C compiler: install gcc, or name a compiler in CC"
    return ""


def left_out(name: str, *, accelerated: bool) -> str:
    """Return why ``auto`` takes none of this host's devices; empty if it takes one, or has none.

    Args:
        name: A configured name.
        accelerated: ``Problem.accelerated`` of the run.
    """
    return lack_of_kernels() if name == "auto" and accelerated and visible() else ""


def placed(
    name: str, number: int = 0, *, devices: int, accelerated: bool, setting: str = COMPUTE
) -> str:
    """Return the device of one of the processes on a host: ``cpu`` or ``cuda:K``.

    ``cuda`` places process j on device j mod the number of devices; ``auto`` does so where there
    are any, Triton can compile kernels and updates are accelerated. A list of devices,
    ``cuda:K,cuda:L``, places it on its entry j mod the list's length.

    Args:
        name: A configured name, or names.
        number: Number of the process on its host.
        devices: CUDA devices of the host.
        accelerated: ``Problem.accelerated`` of the run.
        setting: Setting that has the name, for the error.

    Raises:
        ConfigError: A name is unknown, there is no such device, or Triton can compile no kernel.
    """
    if not _NAMES.fullmatch(name):
        raise ConfigError(
            f"{setting} = {name!r} is no device: use 'auto', 'cpu', 'cuda', 'cuda:K' or a list "
            "such as 'cuda:0,cuda:1'"
        )
    if name == "cpu" or (name == "auto" and not (devices and accelerated)):
        return "cpu"
    if not devices:
        raise ConfigError(
            f"{setting} = {name!r} needs a CUDA device, and this host has none: use 'cpu' or 'auto'"
        )
    if lack := lack_of_kernels():
        if name == "auto":
            return "cpu"
        raise ConfigError(f"{setting} = {name!r} needs kernels, and {lack}; or use 'cpu'")
    if ":" not in name:
        return f"cuda:{number % devices}"
    listed = [int(each.removeprefix("cuda:")) for each in name.split(",")]
    if max(listed) >= devices:
        has = "cuda:0" if devices == 1 else f"cuda:0 to cuda:{devices - 1}"
        raise ConfigError(
            f"{setting} = {name!r} needs cuda:{max(listed)}, and this host has {has}: use one of "
            "them, 'cuda' or 'cpu'"
        )
    return f"cuda:{listed[number % len(listed)]}"


def device_of(name: str, *, accelerated: bool = False, setting: str = COMPUTE) -> torch.device:
    """Return the device of a name for this process alone: of a list the first one.

    ``cuda`` is the current device.

    Args:
        name: A configured name.
        accelerated: ``Problem.accelerated`` of the run, which ``auto`` depends on.
        setting: Setting that has the name, for the error.

    Raises:
        ConfigError: The device is unknown or not available.
    """
    device = placed(name, devices=visible(), accelerated=accelerated, setting=setting)
    return torch.device(device if device == "cpu" or ":" in name else "cuda")


def computed_elsewhere(here: Algorithm, there: Algorithm) -> Algorithm:
    """Return an algorithm that plays and steps on one device, and computes units on another.

    Args:
        here: Holds the authoritative parameters.
        there: The same algorithm on the device that computes; its parameters are overwritten.
    """
    return replace(here, gradients=CopiedGradients(here.parameters, there))


class CopiedGradients:
    """Gradients at parameters that are first copied to another device; implements ``Gradients``.

    Args:
        parameters: The authoritative parameters.
        there: The algorithm on the device that computes.
    """

    def __init__(self, parameters: Parameters, there: Algorithm) -> None:
        self._parameters, self._there = parameters, there

    def compute(
        self, batch: FloatArray, units: Sequence[UnitIndex], **call: Any
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Compute u_i for each requested unit on the other device; see ``Gradients.compute``."""
        copies = self._there.parameters
        for section in self._there.problem.sections:
            copies.view(section.id)[:] = self._parameters.view(section.id)
        copies.written()
        return self._there.gradients.compute(batch, units, **call)

    def fingerprint(self) -> str:
        """Return the numeric identity of the device that computes."""
        return self._there.gradients.fingerprint()
