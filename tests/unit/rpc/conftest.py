"""Addresses for services that must know theirs beforehand."""

import socket

import pytest


@pytest.fixture
def free_address() -> str:
    """A loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
