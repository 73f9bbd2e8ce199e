"""Kinds of values in the configuration tree, with the bounds that all settings of a kind share.

A text in the metadata of a kind is its name on the page of settings. Kinds that name a resource of
one machine are marked local.
"""

import re
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from fullrank.common.types import SettingReach

Count: TypeAlias = Annotated[int, Field(ge=1, le=2**63 - 1)]
NonNegative: TypeAlias = Annotated[int, Field(ge=0, le=2**63 - 1)]
Copies: TypeAlias = Annotated[int, Field(ge=1, le=2**31 - 1)]
"""A number of environments that are stepped together as arrays."""
Finite: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Positive: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Duration: TypeAlias = Positive
"""A positive time in seconds."""


def _address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("must be host:port, for example 127.0.0.1:50051 (port 0: any free one)")
    return value


LOCAL = "local"
"""Address of a service that only this user reaches, by a unix socket on this host."""


SOCKET = "unix:"
"""Prefix of the address of such a service, followed by its socket's path, as it announces it."""


def _service_address(value: str) -> str:
    if value == LOCAL or value.startswith(f"{SOCKET}/"):
        return value
    try:
        return _address(value)
    except ValueError as error:
        raise ValueError(f"{error}, or {LOCAL}") from None


Address: TypeAlias = Annotated[str, AfterValidator(_address), "host:port", SettingReach.LOCAL]
ServiceAddress: TypeAlias = Annotated[
    str,
    AfterValidator(_service_address),
    "`local`, host:port or unix:path",
    SettingReach.LOCAL,
]
OptionalAddress: TypeAlias = Annotated[
    str, AfterValidator(lambda value: value and _address(value)), "host:port", SettingReach.LOCAL
]
"""An address, or an empty text for none."""


_RUN_NAME = re.compile(r"([a-z0-9][a-z0-9_-]{0,49})?", re.ASCII)


def _run_name(value: str) -> str:
    if not _RUN_NAME.fullmatch(value):
        raise ValueError("must be a letter or digit and at most 49 of them, hyphens or underscores")
    return value


RunName: TypeAlias = Annotated[str, AfterValidator(_run_name), "name"]


_FINGERPRINT = re.compile(r"controller|learners|[a-p]{16}")


def _fingerprint(value: str) -> str:
    if not _FINGERPRINT.fullmatch(value):
        raise ValueError("must be controller, learners or the 16 letters of a numeric fingerprint")
    return value


Fingerprint: TypeAlias = Annotated[str, AfterValidator(_fingerprint), "fingerprint"]


_DEVICE = re.compile(r"auto|cpu|cuda|cuda:K(,cuda:K)*".replace("K", r"(0|[1-9]\d*)"))


def _device(value: str) -> str:
    if not _DEVICE.fullmatch(value):
        raise ValueError("must be auto, cpu, cuda, cuda:K or a list: cuda:0,cuda:1")
    return value


Device: TypeAlias = Annotated[str, AfterValidator(_device), "device", SettingReach.LOCAL]
