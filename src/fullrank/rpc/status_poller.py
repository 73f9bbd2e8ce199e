"""Poll the status of a local run, blocking, for the command line."""

from pathlib import Path
from typing import Self

import grpc

from fullrank.common.errors import ServiceLost
from fullrank.config.tree import RunConfig
from fullrank.rpc.addresses import resolve
from fullrank.rpc.channel import open_blocking_channel
from fullrank.rpc.identity import Role
from fullrank.rpc.run_status import RunStatus
from fullrank.rpc.security import Security
from fullrank.rpc.status_messages import decode_status
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.controller_pb2_grpc import ControllerServiceStub

STATUS_S = 2.0
"""Deadline of one call."""


class StatusPoller:
    """Asks the controller of a run for its status; one that is not up yet is STARTING."""

    def __init__(self, run_dir: Path, config: RunConfig) -> None:
        self._run_dir = run_dir
        self._configured = config.controller.address
        self._tls = config.tls
        self._channel: grpc.Channel | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = None

    def status(self) -> RunStatus:
        """Status of the run now."""
        try:
            if self._channel is None:
                address = resolve(self._configured, self._run_dir, "controller")
                trust = Security.of(self._tls, Role.MONITOR).towards(Role.CONTROLLER)
                self._channel = open_blocking_channel(address, trust=trust)
            stub = ControllerServiceStub(self._channel)
            status = stub.GetStatus(pb.GetStatusRequest(), timeout=STATUS_S)
        except (ServiceLost, grpc.RpcError):
            self._close()  # a restarted controller may listen elsewhere
            return RunStatus()
        return decode_status(status)
