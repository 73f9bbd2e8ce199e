"""Devices: names of them, and which of several processes of a host computes on which."""

import torch

from fullrank.common.errors import ConfigError

COMPUTE = "compute.device"
"""Setting that places updates."""


def visible() -> int:
    """Return the number of CUDA devices that this process sees."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def placed(name: str, number: int = 0, *, devices: int, setting: str = COMPUTE) -> str:
    """Return the device of one of the processes on a host: ``cpu`` or ``cuda:K``.

    ``cuda`` places process j on device j mod the number of devices; ``auto`` does so where there
    are any. ``cuda:K`` is device K for every process.

    Args:
        name: A configured name.
        number: Number of the process on its host.
        devices: CUDA devices of the host.
        setting: Setting that has the name, for the error.

    Raises:
        ConfigError: The name is unknown, or there is no such device.
    """
    kind, colon, index = name.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (colon and (kind != "cuda" or not index.isdecimal())):
        raise ConfigError(
            f"{setting} = {name!r} is no device: use 'auto', 'cpu', 'cuda' or 'cuda:K'"
        )
    if kind == "cpu" or (kind == "auto" and not devices):
        return "cpu"
    if not devices:
        raise ConfigError(
            f"{setting} = {name!r} needs a CUDA device, and this host has none: use 'cpu' or 'auto'"
        )
    if index and int(index) >= devices:
        raise ConfigError(
            f"{setting} = {name!r} is not there: this host has {_listed(devices)}; use one of "
            "them, 'cuda' or 'cpu'"
        )
    return f"cuda:{int(index) if index else number % devices}"


def _listed(devices: int) -> str:
    return "cuda:0" if devices == 1 else f"cuda:0 to cuda:{devices - 1}"


def device_of(name: str, *, setting: str = COMPUTE) -> torch.device:
    """Return the device of a name for this process alone: of several, the current one.

    Args:
        name: A configured name.
        setting: Setting that has the name, for the error.

    Raises:
        ConfigError: The device is unknown or not available.
    """
    device = placed(name, devices=visible(), setting=setting)
    return torch.device(device if device == "cpu" or ":" in name else "cuda")
