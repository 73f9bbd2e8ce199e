"""Addresses for services whose address must be known before they listen."""

import socket
from contextlib import suppress
from itertools import count
from os import getpid

FIRST, PORTS = 12_000, 18_000
"""Ports below those that the system gives to clients, so that none is taken in between."""
_offsets = count(getpid() * 101)
"""Port counter; each process begins elsewhere."""
_claims: list[socket.socket] = []
"""Holds a name for each port given, so that no other process of tests gives it meanwhile."""


def free_port(host: str = "127.0.0.1") -> int:
    """An unused port of this machine, which stays this process's."""
    while True:
        port = FIRST + next(_offsets) % PORTS
        claim = socket.socket(socket.AF_UNIX)
        with suppress(OSError), socket.socket() as probe:
            claim.bind(f"\0fullrank-tests-{port}")
            probe.bind((host, port))
            _claims.append(claim)
            return port
        claim.close()


def free_address(host: str = "127.0.0.1") -> str:
    """An unused address of this machine."""
    return f"{host}:{free_port(host)}"
