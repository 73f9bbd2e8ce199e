"""A blocking look at a local run's controller, for the command line."""

from pathlib import Path
from typing import Self

import grpc

from fullrank.common.errors import ServiceLost
from fullrank.config import RunConfig
from fullrank.rpc.addresses import resolve
from fullrank.rpc.channel import open_blocking_channel
from fullrank.rpc.identity import Role
from fullrank.rpc.security import Security
from fullrank.rpc.seen import RunStatus, decode_status
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.controller_pb2_grpc import ControllerServiceStub

STATUS_S = 2.0
"""Deadline of one look."""


class Watch:
    """Looks at the controller of a run; a controller that is not up yet is STARTING."""

    def __init__(self, run_dir: Path, config: RunConfig) -> None:
        self._run_dir = run_dir
        self._configured = config.controller.address
        self._tls = config.tls
        self._channel: grpc.Channel | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._hang_up()

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = None

    def status(self) -> RunStatus:
        """Where the run stands now."""
        try:
            if self._channel is None:
                address = resolve(self._configured, self._run_dir, "controller")
                trust = Security.of(self._tls, Role.MONITOR).towards(Role.CONTROLLER)
                self._channel = open_blocking_channel(address, trust=trust)
            stub = ControllerServiceStub(self._channel)
            status = stub.GetStatus(pb.GetStatusRequest(), timeout=STATUS_S)
        except (ServiceLost, grpc.RpcError):
            self._hang_up()  # a restarted controller may listen elsewhere
            return RunStatus()
        return decode_status(status)
