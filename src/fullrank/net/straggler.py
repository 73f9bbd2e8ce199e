"""Fault injection of a sidecar as messages and back, and the command line's blocking client."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict

from fullrank.common.errors import ConfigError, InvalidContribution
from fullrank.config.faults import Fault, fault_of
from fullrank.config.tree import PluginSettings
from fullrank.host.certificates import Role
from fullrank.net.channel import PLAINTEXT, Security, open_blocking_channel
from fullrank.net.errors import translated
from fullrank.v1 import straggler_pb2 as pb
from fullrank.v1.straggler_pb2_grpc import StragglerServiceStub


def encode_injection(model: PluginSettings, faults: Sequence[Fault]) -> pb.Injection:
    """A delay model and faults as a message."""
    return pb.Injection(model=encode_model(model), faults=map(encode_fault, faults))


def encode_model(settings: PluginSettings) -> pb.DelayModel:
    """A delay model's settings as a message."""
    model = pb.DelayModel(name=settings.name)
    model.params.update(settings.params)
    return model


def decode_model(model: pb.DelayModel) -> PluginSettings:
    """A delay model's settings, not yet validated, from their message.

    Raises:
        ConfigError: A parameter is not a value of TOML or JSON, for example infinity.
    """
    try:
        params = MessageToDict(model.params)
    except ValueError as error:
        raise ConfigError(f"cannot be read: {error}") from None
    return PluginSettings(name=model.name, params=_whole(params))


def _whole(value: Any) -> Any:
    """Numbers without a fraction as integers: a Struct has no others."""
    if isinstance(value, dict):
        return {key: _whole(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_whole(element) for element in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def encode_fault(fault: Fault) -> pb.Fault:
    """A fault as a message."""
    message = pb.Fault(learners=fault.learners, iterations=fault.iterations)
    kind = getattr(message, fault.kind)
    kind.SetInParent()
    for field in kind.DESCRIPTOR.fields:
        setattr(kind, field.name, getattr(fault, field.name))
    return message


def decode_fault(message: pb.Fault) -> Fault:
    """A fault from its message.

    Raises:
        ConfigError: A value is invalid; the message names the field.
    """
    table: dict[str, Any] = {"learners": message.learners, "iterations": message.iterations}
    name = message.WhichOneof("kind")
    if name is not None:
        kind = getattr(message, name)
        table |= {field.name: getattr(kind, field.name) for field in kind.DESCRIPTOR.fields}
    return fault_of(table | {"kind": name})


CALL_S = 10.0
"""Deadline of one call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """Fault injection of a sidecar."""

    model: PluginSettings
    faults: tuple[Fault, ...]


def get_injection(address: str, *, security: Security = PLAINTEXT) -> Injected:
    """Current injection of the sidecar whose control port is ``address``.

    Raises:
        ServiceLost: It does not answer.
    """
    with _dialled(address, security) as stub:
        return _injected(stub.GetInjection(pb.GetInjectionRequest(), timeout=CALL_S).injection)


def set_injection(
    address: str,
    *,
    model: PluginSettings | None = None,
    faults: Sequence[Fault] | None = None,
    security: Security = PLAINTEXT,
) -> Injected:
    """Change the injection; None leaves a part unchanged.

    Raises:
        ConfigError: The sidecar refuses the change and keeps its injection.
        ServiceLost: It does not answer.
    """
    request = pb.SetInjectionRequest()
    if model is not None:
        request.model.CopyFrom(encode_model(model))
    if faults is not None:
        request.faults.CopyFrom(pb.Faults(faults=map(encode_fault, faults)))
    try:
        with _dialled(address, security) as stub:
            return _injected(stub.SetInjection(request, timeout=CALL_S).injection)
    except InvalidContribution as error:
        raise ConfigError(str(error)) from None


@contextmanager
def _dialled(address: str, security: Security) -> Iterator[StragglerServiceStub]:
    with (
        open_blocking_channel(address, trust=security.towards(Role.LEARNER)) as channel,
        translated(f"straggler {address}"),
    ):
        yield StragglerServiceStub(channel)


def _injected(injection: pb.Injection) -> Injected:
    return Injected(
        model=decode_model(injection.model), faults=tuple(map(decode_fault, injection.faults))
    )
