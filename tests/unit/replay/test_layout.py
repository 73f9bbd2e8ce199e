"""The packed row: parts that tile it, and agents' columns that tile the parts."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fullrank.replay import Layout

LAYOUTS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5)), min_size=1, max_size=5).map(
    lambda sizes: Layout(
        observation_sizes=tuple(size for size, _ in sizes),
        action_sizes=tuple(size for _, size in sizes),
    )
)


def parts(layout: Layout) -> list[slice]:
    return [
        layout.observation,
        layout.action,
        layout.reward,
        layout.next_observation,
        layout.terminated,
        layout.alive,
    ]


@given(LAYOUTS)
def test_the_parts_tile_the_row(layout: Layout) -> None:
    columns = np.concatenate([np.arange(layout.row_size)[part] for part in parts(layout)])
    np.testing.assert_array_equal(columns, np.arange(layout.row_size))


@given(LAYOUTS)
def test_the_agents_tile_the_joint_parts(layout: Layout) -> None:
    agents = range(layout.agents)
    for own, sizes in (
        (layout.observation_of, layout.observation_sizes),
        (layout.action_of, layout.action_sizes),
    ):
        columns = np.concatenate([np.arange(sum(sizes))[own(agent)] for agent in agents])
        np.testing.assert_array_equal(columns, np.arange(sum(sizes)))
        assert [own(agent).stop - own(agent).start for agent in agents] == list(sizes)


@given(LAYOUTS, st.integers(0, 4))
def test_what_is_packed_is_read_back(layout: Layout, copies: int) -> None:
    generator = np.random.default_rng(0)
    observations, actions = sum(layout.observation_sizes), sum(layout.action_sizes)
    arrays: dict[str, Any] = {
        "observation": generator.random((copies, observations), dtype=np.float32),
        "action": generator.random((copies, actions), dtype=np.float32),
        "reward": generator.random((copies, layout.agents)),
        "next_observation": generator.random((copies, observations), dtype=np.float32),
        "terminated": generator.random((copies, layout.agents)) < 0.5,
        "alive": generator.random((copies, layout.agents)) < 0.5,
    }
    out = np.full((copies, layout.row_size), np.nan, dtype=np.float32)
    layout.pack(**arrays, out=out)
    for name, array in arrays.items():
        np.testing.assert_array_equal(out[:, getattr(layout, name)], array.astype(np.float32))
