"""A deadline follows measured times and never falls below the configured one."""

from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.deadlines import MEASURED, limit_s

seconds = st.floats(1e-6, 1e3)


@given(
    measured=st.lists(seconds, min_size=MEASURED, max_size=60),
    factor=st.floats(1.0, 50.0),
    least=seconds,
)
def test_what_takes_no_longer_than_all_but_the_longest_is_never_cut(
    measured: list[float], factor: float, least: float
) -> None:
    limit = limit_s(measured, factor=factor, least_s=least, unmeasured_s=0.0)
    assert limit >= least
    assert limit >= sorted(measured)[-2]
    assert limit <= max(least, factor * max(measured))


def test_before_it_was_measured_often_the_configured_time_counts() -> None:
    seldom, often = [1.0] * (MEASURED - 1), [1.0] * MEASURED
    assert limit_s(seldom, factor=3.0, least_s=2.0, unmeasured_s=60.0) == 60.0
    assert limit_s(often, factor=3.0, least_s=2.0, unmeasured_s=60.0) == 3.0
    assert limit_s([1e-3] * MEASURED, factor=3.0, least_s=2.0, unmeasured_s=60.0) == 2.0
