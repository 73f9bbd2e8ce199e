"""Files, JSON and TOML from elsewhere are read within bounds, or refused in one line."""

import os
import socket
from pathlib import Path

import pytest

from fullrank.common.errors import Malformed
from fullrank.common.foreign import parse_json, parse_toml, read_regular, shown


def test_a_regular_file_within_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 7) == b"content"


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path in (
            "fifo",
            "loop",
            "socket",
            ".",
            "missing",
            "/dev/null",
            "/dev/zero",
            "with\0nul",
            "x" * 300,
        ):
            with pytest.raises(Malformed) as caught:
                read_regular(tmp_path / path, 100)
            assert "\n" not in str(caught.value)


def test_a_file_beyond_the_limit_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(Malformed, match=r"has 1099511627776 bytes, and 100 are the limit"):
        read_regular(tmp_path / "sparse", 100)


def test_a_file_that_states_no_size_is_refused_beyond_the_limit() -> None:
    with pytest.raises(Malformed, match=r"has 101 bytes, and 100 are the limit"):
        read_regular(Path("/proc/self/status"), 100)


HOSTILE_JSON = {
    "nested": "[" * 100_000,
    "nested a little": "[" * 100 + "]" * 100,
    "digits": "9" * 5_000,
    "many digits": "9" * 100,
    "nan": "NaN",
    "infinity": '{"x": [-Infinity]}',
    "overflow": "1e999",
    "long": '"' + "x" * 2**20 + '"',
    "empty": "",
    "no UTF-8": b"\xff",
    "cut off": '{"a": 1',
}


@pytest.mark.parametrize("text", HOSTILE_JSON.values(), ids=HOSTILE_JSON)
def test_hostile_json_is_refused_in_one_short_line(text: str | bytes) -> None:
    with pytest.raises(Malformed, match=r"^peer ") as caught:
        parse_json(text, origin="peer")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


HOSTILE_TOML = {
    "nested": "x = " + "[" * 100_000,
    "tables": "\n".join(f"[{'.'.join('a' * n)}]" for n in range(1, 100)),
    "dotted": ".".join(["a"] * 500_000) + " = 1",
    "quoted": ".".join(['"a"'] * 200_000) + " = 1",
    "digits": "x = " + "9" * 5_000,
    "many digits": "x = " + "9" * 100,
    "nan": "x = nan",
    "infinity": "[a]\nx = [inf]",
    "long": "#" * 2**21,
    "broken": "x =",
    "no UTF-8": b"x = '\xff'",
}


@pytest.mark.parametrize("text", HOSTILE_TOML.values(), ids=HOSTILE_TOML)
def test_hostile_toml_is_refused_in_one_short_line(text: str | bytes) -> None:
    with pytest.raises(Malformed, match=r"^peer ") as caught:
        parse_toml(text, origin="peer")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_honest_text_is_read() -> None:
    assert parse_json(b'{"state": [%d, 1.5, null]}' % 2**127, origin="") == {
        "state": [2**127, 1.5, None]
    }
    assert parse_toml("a.b = [0.5, -1]\nc = 'd.e.f'", origin="") == {
        "a": {"b": [0.5, -1]},
        "c": "d.e.f",
    }


def test_values_are_shown_in_one_short_printable_line() -> None:
    for value in (
        10**5_000,
        "x" * 10**6,
        b"\xff" * 100,
        ["\x1b[2J"] * 100,
        [10**5_000],
        {"a": 1.0},
    ):
        assert len(shown(value)) <= 80
        assert shown(value).isprintable()
