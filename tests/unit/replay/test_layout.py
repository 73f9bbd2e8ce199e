"""The packed row: parts that tile it, and agents' columns that tile the parts."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import EnvironmentFailed
from fullrank.replay.layout import Layout

AGENTS = st.tuples(st.integers(0, 6), st.integers(1, 5), st.sets(st.integers(0, 5)))
LAYOUTS = st.lists(AGENTS, min_size=1, max_size=5).map(
    lambda agents: Layout(
        observation_sizes=tuple(size for size, _, _ in agents),
        action_sizes=tuple(size for _, size, _ in agents),
        always_zero=tuple(tuple(sorted(zero & set(range(size)))) for size, _, zero in agents),
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
        (layout.observation_of, [len(layout.live_of(agent)) for agent in agents]),
        (layout.action_of, layout.action_sizes),
    ):
        columns = np.concatenate([np.arange(sum(sizes))[own(agent)] for agent in agents])
        np.testing.assert_array_equal(columns, np.arange(sum(sizes)))
        assert [own(agent).stop - own(agent).start for agent in agents] == list(sizes)


@given(LAYOUTS, st.integers(0, 4))
def test_what_is_packed_is_read_back(layout: Layout, copies: int) -> None:
    generator = np.random.default_rng(0)
    observations, actions = sum(layout.observation_sizes), sum(layout.action_sizes)
    live = np.isin(np.arange(observations), layout.live)
    arrays: dict[str, Any] = {
        "observation": generator.random((copies, observations), dtype=np.float32) * live,
        "action": generator.random((copies, actions), dtype=np.float32),
        "reward": generator.random((copies, layout.agents)),
        "next_observation": generator.random((copies, observations), dtype=np.float32) * live,
        "terminated": generator.random((copies, layout.agents)) < 0.5,
        "alive": generator.random((copies, layout.agents)) < 0.5,
    }
    out = np.full((copies, layout.row_size), np.nan, dtype=np.float32)
    layout.pack(**arrays, out=out)
    for name, array in arrays.items():
        part = out[:, getattr(layout, name)]
        if "observation" in name:
            part = layout.whole(part)
        np.testing.assert_array_equal(part, array.astype(np.float32))


@given(LAYOUTS)
def test_a_row_holds_every_entry_that_is_not_declared_always_zero(layout: Layout) -> None:
    zeros = layout.always_zero
    for agent, size in enumerate(layout.observation_sizes):
        assert sorted([*layout.live_of(agent), *zeros[agent]]) == list(range(size))


def test_an_entry_that_is_falsely_declared_always_zero_is_refused() -> None:
    layout = Layout(observation_sizes=(2, 3), action_sizes=(1, 1), always_zero=((), (1,)))
    seen, nothing = np.zeros((1, 5), np.float32), np.zeros((1, 2))
    arrays: dict[str, Any] = {
        "action": nothing,
        "reward": nothing,
        "terminated": nothing,
        "alive": nothing,
        "out": np.empty((1, layout.row_size), np.float32),
    }
    layout.pack(observation=seen, next_observation=seen, **arrays)
    wrong = seen.copy()
    wrong[0, 3] = 0.5
    with pytest.raises(EnvironmentFailed, match="always zero that are not"):
        layout.pack(observation=seen, next_observation=wrong, **arrays)
