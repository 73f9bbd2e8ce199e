"""Lines of progress: their contents and their frequency."""

from dataclasses import replace

from fullrank.runs.progress import LINE_PERIOD_S, Cells, Lines
from fullrank.runs.record import IterationRecord

RECORD = IterationRecord(
    iteration=0,
    term=1,
    epoch=0,
    attempt=0,
    code="cyclic",
    return_mean=-500.0,
    round_s=0.0204,
    collect_s=0.01,
    compute_s={0: 0.01},
    decode_s=0.001,
    received=(2, 0, 3),
    late=(1,),
    exact=True,
    condition=2.56,
    error_bound=0.0,
    update_digest="00",
    bytes_sent={},
    bytes_received={},
)


class Clock:
    """A clock that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_line_holds_what_the_terminal_shows() -> None:
    said: list[str] = []
    Lines(said.append, iterations=20, clock=Clock()).write(RECORD)
    assert said == [
        "iteration 1/20  return -500.0  round 20 ms  |J| 3  late 1  kappa 2.6  exact yes"
    ]


def test_lines_keep_their_distance_and_the_last_is_always_said() -> None:
    said: list[str] = []
    clock = Clock()
    lines = Lines(said.append, iterations=20, clock=clock)
    for iteration in range(4):
        lines.write(replace(RECORD, iteration=iteration))
    clock.now += LINE_PERIOD_S
    lines.write(replace(RECORD, iteration=4, return_mean=-400.0))
    lines.write(replace(RECORD, iteration=5, return_mean=None))
    lines.close()
    lines.close()
    assert [line.split("  ")[0] for line in said] == [
        "iteration 1/20",
        "iteration 5/20",
        "iteration 6/20",
    ]
    assert "return -480.0" in said[-1]


def test_the_return_of_each_side_is_shown_where_there_are_several() -> None:
    cells = Cells()
    sides = {"predator": 30.0, "prey": -40.0}
    assert cells.formatted(replace(RECORD, return_mean=-10.0, side_returns=sides))[1] == (
        "-10.0 (predator 30.0, prey -40.0)"
    )
    quiet = replace(RECORD, iteration=1, return_mean=None, side_returns={})
    assert cells.formatted(quiet)[1] == "-10.0 (predator 30.0, prey -40.0)"
    assert Cells().formatted(replace(RECORD, side_returns={"team": -500.0}))[1] == "-500.0"
    assert Cells().formatted(quiet)[1] == "-"
