"""An object store that speaks S3, as a process on loopback, for a test."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest
from tests.addresses import free_address
from tests.waiting import WAIT_S, wait_until


@contextmanager
def bucket(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of an empty bucket, whose credentials are in this process's environment."""
    address = free_address()
    host, port = address.split(":")
    command = [sys.executable, "-m", "moto.server", "-H", host, "-p", port]
    with (folder / "s3.log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: _made(host, int(port)), what="the object store answers")
        patch.setenv("AWS_ENDPOINT_URL", f"http://{address}")
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_REGION", "us-east-1")
        yield "s3://runs"
    finally:
        server.kill()
        server.wait()


def _made(host: str, port: int) -> bool:
    connection = HTTPConnection(host, port, timeout=WAIT_S)
    try:
        connection.request("PUT", "/runs")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
