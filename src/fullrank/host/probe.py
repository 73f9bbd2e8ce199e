"""Ask a process for its health, by one grpc.health.v1 call in plain HTTP/2, written out.

``fullrank doctor HOST:PORT`` calls it, and container health checks run this file itself::

    python3 -I -S probe.py HOST:PORT [SERVICE]

It imports nothing but the sockets of the interpreter: a probe of every few seconds must not cost a
start of gRPC, which takes seconds on a busy host and makes healthy services look ill.
"""

import _socket
import sys

TIMEOUT_S = 3.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, GOAWAY = 0x0, 0x1, 0x3, 0x4, 0x7
END_STREAM, END_HEADERS = 0x1, 0x4
STATUSES = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


def probe(address: str, service: str = "", timeout_s: float = TIMEOUT_S) -> str:
    """Health of ``service`` of the process at ``address``, such as ``SERVING``.

    Args:
        address: ``host:port`` that serves grpc.health.v1 in plain text.
        service: Name that is asked for; empty: the whole process.
        timeout_s: Limit on connecting and on each wait for an answer, in seconds.

    Raises:
        OSError: It cannot be reached, or gives no such answer.
    """
    host, _, port = address.rpartition(":")
    kind = _socket.SOCK_STREAM
    name = host.strip("[]").encode()  # of a text, the codec idna and its imports would be needed
    family, _, _, _, peer = _socket.getaddrinfo(name, port, 0, kind)[0]
    connection = _socket.socket(family, kind)
    try:
        connection.settimeout(timeout_s)
        connection.connect(peer)
        connection.sendall(PREFACE + _frame(SETTINGS, b"", stream=0) + _request(service))
        return _answer(connection)
    finally:
        connection.close()


def _frame(kind: int, payload: bytes, *, flags: int = 0, stream: int = 1) -> bytes:
    """An HTTP/2 frame (RFC 9113, section 4.1)."""
    length = len(payload).to_bytes(3, "big")
    return length + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _request(service: str) -> bytes:
    """Health.Check; headers are literals beside indices of HPACK's static table (RFC 7541)."""
    headers = b"\x83\x86"  # :method POST, :scheme http
    for name, value in (
        (b"\x04", b"/grpc.health.v1.Health/Check"),  # :path
        (b"\x01", b"health"),  # :authority
        (b"\x0f\x10", b"application/grpc"),  # content-type
        (b"\x00\x02te", b"trailers"),
    ):
        headers += name + bytes((len(value),)) + value
    text = service.encode()[:127]
    message = b"\x0a" + bytes((len(text),)) + text if text else b""
    body = b"\x00" + len(message).to_bytes(4, "big") + message
    return _frame(HEADERS, headers, flags=END_HEADERS) + _frame(DATA, body, flags=END_STREAM)


def _answer(connection: _socket.socket) -> str:
    """Status in the message that answers; frames of the connection itself are passed over."""
    while True:
        head = _exactly(connection, 9)
        kind, flags = head[3], head[4]
        payload = _exactly(connection, int.from_bytes(head[:3], "big"))
        if kind == DATA and len(payload) >= 5:
            message = payload[5:]  # behind a flag and a length; empty where the status is 0
            return STATUSES.get(message[1] if len(message) > 1 else 0, "UNKNOWN")
        if kind == HEADERS and flags & END_STREAM:
            raise OSError("it refuses to say: it serves no such name")
        if kind in (RESET, GOAWAY):
            raise OSError("it ended the call")


def _exactly(connection: _socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise OSError("it closed the connection; does it serve grpc.health.v1 in plain text?")
        received += part
    return received


if __name__ == "__main__":
    try:
        health = probe(sys.argv[1], "".join(sys.argv[2:3]))
    except OSError as error:
        health = str(error)
    sys.stdout.write(f"{health}\n")
    sys.exit(0 if health == "SERVING" else 1)
