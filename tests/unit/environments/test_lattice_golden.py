"""The lattice tasks replay recorded trajectories of the reference implementations bit for bit."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fullrank.environments.lattice.grid import ABSENT
from fullrank.environments.lattice.ising import Ising, aligned
from fullrank.environments.lattice.wireless import Wireless, chosen, reachable

from .recordings import HERE, AnyArray, Recording, load, recordings

ISING = recordings("darl1n_ising_m[0-9]", "darl1n_ising_m[0-9][0-9]")
WIRELESS = recordings("wireless_3x3_z*")
CUTS = (0.2, 0.4, 0.6, 0.8)
"""Thresholds at which the reference cuts a number into five choices."""


def test_every_recorded_size_is_replayed() -> None:
    kept = [path.stem for path in [*ISING, *WIRELESS] if path.parent == HERE]
    assert len(kept) == 5


@pytest.mark.parametrize("path", ISING, ids=lambda path: path.stem)
def test_spins_equal_the_reference(path: Path) -> None:
    data = load(path)
    copies, steps, agents, _ = data["action"].shape
    spins = Ising().make(agents=agents, copies=copies)
    np.testing.assert_array_equal(spins.hood[:, 1:], data["neighbor_index"])
    spins.state[..., 0] = data["init_spin"]
    np.testing.assert_array_equal(spins.observation(), data["init_obs"].reshape(copies, -1))
    np.testing.assert_array_equal(aligned(spins.state, spins.hood), data["init_reward"])
    for t in range(steps):
        step = spins.step(data["action"][:, t].reshape(copies, -1))
        np.testing.assert_array_equal(spins.state[..., 0], data["spin"][:, t])
        np.testing.assert_array_equal(step.observation, data["obs"][:, t].reshape(copies, -1))
        np.testing.assert_array_equal(step.reward, data["reward"][:, t])
    assert step.ended.all()


def chances(data: Recording, episode: int) -> Iterator[AnyArray]:
    """Draws of the reference: no number where none was needed, and bits of arrival."""
    success, arrived = data["success_draw"][episode], data["arrival_draw"][episode]
    return iter(np.stack([np.nan_to_num(success, nan=0.5), 1.0 - arrived], axis=-1))


@pytest.mark.parametrize("path", WIRELESS, ids=lambda path: path.stem)
def test_packets_equal_the_reference(path: Path) -> None:
    data = load(path)
    copies, steps, _ = data["action"].shape
    choice = np.searchsorted(CUTS, data["action"])
    replayed: list[list[AnyArray]] = []
    for episode in range(copies):  # each has access points of its own
        uplink = Wireless(deadline=int(data["deadline"])).make(agents=9, copies=1)
        uplink.state[0] = data["init_packets"][episode]
        uplink.rates, uplink.chances = data["access_rate"][episode], [chances(data, episode)]
        np.testing.assert_array_equal(uplink.observation()[0], data["init_obs"][episode].ravel())
        for t in range(steps):
            step = uplink.step(np.eye(5, dtype=np.float32)[choice[episode, t]].reshape(1, -1))
            np.testing.assert_array_equal(uplink.state[0], data["packets"][episode, t])
            np.testing.assert_array_equal(step.observation[0], data["obs"][episode, t].ravel())
            np.testing.assert_array_equal(step.reward[0], data["reward"][episode, t])
        replayed.append([step.ended])
    assert np.all(replayed)


@pytest.mark.parametrize("path", WIRELESS, ids=lambda path: path.stem)
def test_users_reach_the_access_points_of_the_reference(path: Path) -> None:
    data = load(path)
    uplink = Wireless().make(agents=9, copies=1)
    mask = np.zeros((9, 10), dtype=bool)
    np.put_along_axis(mask, uplink.hood[:, 1:], values=True, axis=1)
    np.testing.assert_array_equal(mask[:, :ABSENT], data["neighbor_mask"].astype(bool))
    np.testing.assert_array_equal(reachable(3), data["reachable"])
    action = np.eye(5, dtype=np.float32)[np.searchsorted(CUTS, data["action"])]
    points = chosen(action.reshape(-1, 9, 5), reachable(3)).reshape(data["access_point"].shape)
    np.testing.assert_array_equal(points, data["access_point"])
