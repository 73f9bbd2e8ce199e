"""StragglerService: reads and changes the injection."""

from dataclasses import replace

from fullrank.common.errors import ConfigError, InvalidContribution
from fullrank.config.faults import Fault
from fullrank.net.errors import Context, statuses
from fullrank.net.straggler import decode_fault, decode_model, encode_injection
from fullrank.stragglers import delay_models
from fullrank.v1 import straggler_pb2 as pb
from fullrank_straggler.control import Control
from fullrank_straggler.injection import Injection, injection_of


class StragglerServicer:
    """StragglerService over the injection of one process."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def GetInjection(
        self, request: pb.GetInjectionRequest, context: Context
    ) -> pb.GetInjectionResponse:
        """Report the current injection."""
        return pb.GetInjectionResponse(injection=self._encoded())

    async def SetInjection(
        self, request: pb.SetInjectionRequest, context: Context
    ) -> pb.SetInjectionResponse:
        """Apply a change as a whole or not at all."""
        async with statuses(context):
            injection = self._control.injection()
            if request.HasField("faults"):
                faults = enumerate(request.faults.faults)
                injection = replace(
                    injection, faults=tuple(_fault(index, fault) for index, fault in faults)
                )
            if request.HasField("model"):
                injection = _with_model(injection, request.model)
            try:
                self._control.change(injection)
            except ConfigError as error:
                raise InvalidContribution(f"model.params: {error}") from None
            return pb.SetInjectionResponse(injection=self._encoded())

    def _encoded(self) -> pb.Injection:
        injection = self._control.injection()
        return encode_injection(injection.settings, injection.faults)


def _with_model(injection: Injection, model: pb.DelayModel) -> Injection:
    field = "model.params" if model.name in delay_models else "model.name"
    try:
        settings = decode_model(model)
        origin = {f"stragglers.{key}": "the request" for key in settings.params}
        return injection_of(settings, injection.faults, origin=origin)
    except ConfigError as error:
        raise InvalidContribution(f"{field}: {error}") from None


def _fault(index: int, fault: pb.Fault) -> Fault:
    try:
        return decode_fault(fault)
    except ConfigError as error:
        raise InvalidContribution(f"faults.{index}.{error}") from None
