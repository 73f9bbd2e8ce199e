"""Addresses for services whose address must be known before they listen."""

import socket
from itertools import count
from os import getpid

FIRST, PORTS = 12_000, 18_000
"""Ports below those that the system gives to clients, so that none is taken in between."""
_offsets = count(getpid() * 101)
"""Port counter; each process begins elsewhere."""


def free_port(host: str = "127.0.0.1") -> int:
    """An unused port of this machine."""
    while True:
        port = FIRST + next(_offsets) % PORTS
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port


def free_address(host: str = "127.0.0.1") -> str:
    """An unused address of this machine."""
    return f"{host}:{free_port(host)}"
