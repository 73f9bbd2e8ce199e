"""Blocking client of a straggler sidecar, for the command line."""

from collections.abc import Sequence
from dataclasses import dataclass

from fullrank.common.errors import ConfigError, InvalidContribution
from fullrank.config.faults import Fault
from fullrank.config.tree import PluginSettings
from fullrank.rpc.channel import open_blocking_channel
from fullrank.rpc.errors import translated
from fullrank.rpc.identity import Role
from fullrank.rpc.injection import decode_fault, decode_model, encode_fault, encode_model
from fullrank.rpc.security import PLAINTEXT, Security
from fullrank.v1 import straggler_pb2 as pb
from fullrank.v1.straggler_pb2_grpc import StragglerServiceStub

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
    with open_blocking_channel(address, trust=security.towards(Role.LEARNER)) as channel:
        stub = StragglerServiceStub(channel)
        with translated(f"straggler {address}"):
            injection = stub.GetInjection(pb.GetInjectionRequest(), timeout=CALL_S).injection
    return _injected(injection)


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
    with open_blocking_channel(address, trust=security.towards(Role.LEARNER)) as channel:
        stub = StragglerServiceStub(channel)
        try:
            with translated(f"straggler {address}"):
                injection = stub.SetInjection(request, timeout=CALL_S).injection
        except InvalidContribution as error:
            raise ConfigError(str(error)) from None
    return _injected(injection)


def _injected(injection: pb.Injection) -> Injected:
    return Injected(
        model=decode_model(injection.model), faults=tuple(map(decode_fault, injection.faults))
    )
