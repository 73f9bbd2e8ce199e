"""``fullrank run status``: lanes, curves, and tables that can be read in 80 columns."""

import io

import pytest
from tests.unit.runs.test_time_budget import timed

from fullrank.cli.status_view import headline, lanes, players, sparkline
from fullrank.cli.terminal import Terminal
from fullrank.net.status import CollectorStatus, ContainerStatus, RunStatus, Status

CONTAINERS = 3
FAILED = "the head of container 1 was lost in an update, MemoryError(), after 17 updates"


def status(*caveats: str) -> RunStatus:
    """A long run of containers in Docker, the second of which began anew."""
    container = ContainerStatus(
        played=1_560_000, handed_over=936_000, updates=123_456, published=123_400, divergence=0.0412
    )
    collectors = tuple(
        CollectorStatus(
            collector=number, host="4f3a2b1c0d9e", fingerprint="abcd", spare="", blocks=120_000,
            block=None, playing_s=0.4, lag=100, silent_s=10.3, failed=FAILED * (number == 1),
            stale=100, container=container,
        )
        for number in range(CONTAINERS)
    )  # fmt: skip
    return RunStatus(run="cmarl", message="", collectors=collectors, caveats=caveats)


@pytest.mark.parametrize("width", [80, 120])
def test_each_container_takes_one_whole_line_of_each_table(width: int) -> None:
    file = io.StringIO()
    tables = players(status())
    for table in tables:
        Terminal(file=file, width=width).print(table)
    lines = file.getvalue().splitlines()
    assert len(lines) == len(tables) * (1 + CONTAINERS)
    assert "…" not in file.getvalue()
    for word in ("4f3a2b1c0d9e", "936000", "123456", "0.041", "10.3 s ago"):
        assert file.getvalue().count(word) % CONTAINERS == 0
        assert word in file.getvalue()


def test_the_container_that_began_anew_is_named_once() -> None:
    said = f"collector 1 on 4f3a2b1c0d9e: {FAILED}"
    assert headline(Status(now=status())).count(said) == 1
    assert headline(Status(now=status(said))).count(said) == 1


def test_a_lane_shows_each_phase_to_scale_and_when_the_rank_sufficed() -> None:
    drawn = lanes(timed(decodable_s=7.5), width=16)
    assert drawn == {
        0: "──░░░░░░░░████▸│",
        1: "···············│",
        3: "               │",
    }


def test_a_curve_goes_up_where_the_values_do() -> None:
    assert sparkline([], width=8) == ""
    assert sparkline([1.0], width=8) == "▁"
    assert sparkline([0.0, 1.0, 7.0], width=8) == "▁▂█"
    assert sparkline([float(value) for value in range(80)], width=8) == "▁▂▃▄▅▆▇█"
