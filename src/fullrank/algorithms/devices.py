"""Devices: names of them, which process of a host has which, and parameters on another one."""

import importlib
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from fullrank.algorithms.roles import Algorithm, Parameters
from fullrank.common.errors import ConfigError
from fullrank.common.rows import Rows
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.networks.fused.cuda import HostCopy, one_ahead
from fullrank.networks.fused.kernels import Kernel, fingerprint

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
        raise ConfigError(
            f"{setting} = {name!r} needs cuda:{max(listed)}, and this host has "
            f"{_listed(devices)}: use one of them, 'cuda' or 'cpu'"
        )
    return f"cuda:{listed[number % len(listed)]}"


def _listed(devices: int) -> str:
    return "cuda:0" if devices == 1 else f"cuda:0 to cuda:{devices - 1}"


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


class StayingGradients(ABC):
    """Gradients that leave updates on the device of the parameters; implements ``Gradients``.

    Args:
        device: The device.
        kernel: Kernels of the products.
    """

    def __init__(self, device: torch.device, kernel: Kernel) -> None:
        self._device, self._kernel = device, kernel

    @property
    def device(self) -> torch.device:
        """Return the device of the updates."""
        return self._device

    @abstractmethod
    def rows(
        self,
        batch: Rows,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, Tensor]]:
        """Compute u_i for each requested unit and leave it on its device; see ``OnDevice``.

        Only one call may be active: a newer call reuses the buffers of an older one.
        """

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Compute u_i for each requested unit, in an order by size; see ``Gradients.compute``."""
        rows = self.rows(batch, units, iteration=iteration, check_cancelled=check_cancelled)
        copies = one_ahead((unit, HostCopy(row)) for unit, row in rows)
        return ((unit, copy.array()) for unit, copy in copies)

    def fingerprint(self) -> str:
        """Return the numeric identity of this process."""
        return fingerprint(self._kernel, self._device)


class CopiedGradients:
    """Gradients at parameters that are first copied to another device; implements ``Gradients``.

    Args:
        parameters: The authoritative parameters.
        there: The algorithm on the device that computes.
    """

    def __init__(self, parameters: Parameters, there: Algorithm) -> None:
        self._parameters, self._there = parameters, there

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Compute u_i for each requested unit on the other device; see ``Gradients.compute``."""
        copies = self._there.parameters
        for section in self._there.problem.sections:
            copies.view(section.id)[:] = self._parameters.view(section.id)
        copies.written()
        return self._there.gradients.compute(
            batch, units, iteration=iteration, row=row, check_cancelled=check_cancelled
        )

    def fingerprint(self) -> str:
        """Return the numeric identity of the device that computes."""
        return self._there.gradients.fingerprint()
