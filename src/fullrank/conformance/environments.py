"""Laws that every environment keeps."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from fullrank.common.errors import ConfigError, EnvironmentFailed
from fullrank.environments import Discrete, Environment, Step, make_environment
from fullrank.environments.capabilities import (
    Contested,
    available_of,
    horizon_of,
    shares_reward,
    state_of,
    state_size,
)
from fullrank.training.evaluation import random_actions

STEPS, LONGEST = 60, 5000
"""Steps that are played for a glance, and within which an episode must end."""


@dataclass(frozen=True)
class Made:
    """An environment with a number of agents and parameters; call it with a number of copies."""

    name: str
    agents: int
    params: Mapping[str, Any]
    seeded: bool = True
    """False if all episodes begin alike."""

    def __call__(self, copies: int) -> Environment:
        """Make the environment."""
        return make_environment(self.name, agents=self.agents, copies=copies, **self.params)


class EnvironmentLaws:
    """Laws of one environment: pytest runs the methods of a subclass whose name begins with Test.

    The fixture ``made`` makes the environment; see ``environment_laws``.
    """

    @pytest.fixture
    def made(self) -> Made:
        """Return the environment; a subclass overrides this, and may have several."""
        raise NotImplementedError("override the fixture `made`, or use environment_laws(NAME)")

    def test_what_a_step_returns_keeps_every_promise(self, made: Made) -> None:
        """Shapes, types, ends and constant entries are those that the environment declares."""
        environment = made(3)
        agents, everybody = environment.agents, [0, 1, 2]
        size = sum(agent.observation_size for agent in agents)
        assert environment.copies == 3
        assert len({agent.name for agent in agents}) == len(agents)
        zero, start = list[int](), 0
        for agent in agents:
            zero += [start + entry for entry in agent.always_zero]
            start += agent.observation_size
        act, observation = _Random(environment, 2), environment.reset([1, 2, 3], everybody)
        over = np.zeros(3, bool)
        for t in range(LONGEST):
            assert _kind(observation) == ((3, size), "float32")
            assert not observation[:, zero].any()
            step = environment.step(act(observation))
            assert _kind(step.observation) == ((3, size), "float32")
            assert not step.observation[:, zero].any()
            assert _kind(step.reward) == ((3, len(agents)), "float64")
            assert _kind(step.terminated) == _kind(step.alive) == ((3, len(agents)), "bool")
            assert _kind(step.ended) == ((3,), "bool")
            assert np.isfinite(step.observation).all()
            assert np.isfinite(step.reward).all()
            assert not (step.terminated & step.alive & ~step.ended[:, None]).any()
            if isinstance(environment, Contested):
                assert _kind(won := environment.won()) == ((3,), "bool")
                assert not (won & ~step.ended).any(), "only an episode that ended is won"
            if shares_reward(environment):
                assert (step.reward == step.reward[:, :1]).all()
            ended = np.flatnonzero(step.ended).tolist()
            over |= step.ended
            observation = environment.reset([10 * t + copy for copy in ended], ended)
            if over.all() and t >= 3 * STEPS:
                return
        pytest.fail(f"an episode has not ended after {LONGEST} steps: set a time limit")

    def test_an_episode_is_the_same_whatever_was_played_before(self, made: Made) -> None:
        """A resumed run, and one that plays block by block, have those of the uninterrupted one."""

        def episode(environment: Environment, seed: int) -> list[np.ndarray[Any, Any]]:
            act = _Random(environment, seed)
            seen = [environment.reset([seed], [0])]
            for _ in range(STEPS if seed % 20 == 0 else 2):
                state = state_of(environment, seen[-1]).copy()
                step = environment.step(act(seen[-1]))
                seen += [state, *_parts(step)[1:], step.observation]
                if step.ended[0]:
                    break
            return seen

        one, other, seeds = made(1), made(1), range(30)
        forwards = {seed: episode(one, seed) for seed in seeds}
        backwards = {seed: episode(other, seed) for seed in reversed(seeds)}
        for seed in seeds:
            for a, b in zip(forwards[seed], backwards[seed], strict=True):
                np.testing.assert_array_equal(a, b)

    def test_every_episode_has_as_many_steps_as_the_horizon_says(self, made: Made) -> None:
        """Rewards are standardised by random play of so many steps."""
        environment = made(2)
        act, horizon = _Random(environment, 4), horizon_of(environment)
        observation = environment.reset([1, 2], [0, 1])
        for number in range(1, horizon + 1):
            step = environment.step(act(observation))
            observation = step.observation
            assert (step.ended == (number == horizon)).all(), (
                f"horizon is {horizon}, and after {number} steps of two episodes they ended: "
                f"{step.ended.tolist()}"
            )

    def test_other_seeds_give_other_episodes(self, made: Made) -> None:
        """A team that sees one episode alone learns no other."""
        environment = made(20)
        starts = environment.reset(range(20), range(20))
        different = len(np.unique(starts, axis=0)) > 1
        assert different == made.seeded, (
            "all seeds begin alike; if nothing is random, say seeded=False"
            if made.seeded
            else "seeds begin differently; leave out seeded=False"
        )

    def test_a_reset_leaves_the_other_copies_as_they_are(self, made: Made) -> None:
        """Episodes of other copies go on."""
        environment = made(3)
        act = _Random(environment, 0)
        observation = environment.reset([1, 2, 3], [0, 1, 2])
        after = environment.step(act(observation)).observation.copy()
        state = state_of(environment, after)[1].copy()
        reset = environment.reset([9], [1])
        np.testing.assert_array_equal(reset[[0, 2]], after[[0, 2]])
        np.testing.assert_array_equal(reset[1], made(1).reset([9], [0])[0])
        assert not np.array_equal(state_of(environment, reset)[1], state)

    def test_a_step_overwrites_nothing_that_was_returned_before(self, made: Made) -> None:
        """Transitions hold what was returned before and after a step."""
        environment = made(2)
        act = _Random(environment, 0)
        first = environment.reset([1, 2], [0, 1])
        step = environment.step(act(first))
        kept = [part.copy() for part in [first, *_parts(step)]]
        environment.step(act(step.observation))
        environment.reset([3], [0])
        for before, after in zip(kept, [first, *_parts(step)], strict=True):
            np.testing.assert_array_equal(before, after)

    def test_a_copy_plays_as_if_it_were_alone_and_states_are_of_the_present(
        self, made: Made
    ) -> None:
        """An episode does not depend on the number of copies or on what the others do."""
        together, again, alone = made(4), made(4), made(1)
        act = _Random(together, 3)
        agents, observation = together.agents, together.reset([5, 6, 7, 8], [0, 1, 2, 3])
        assert again.reset([5, 6, 7, 8], [0, 1, 2, 3]).shape == observation.shape
        single = alone.reset([7], [0])
        owner = np.repeat(np.arange(len(agents)), [agent.action.size for agent in agents])
        alive, ended = np.ones((4, len(agents)), dtype=bool), False
        for _ in range(LONGEST):
            state, available = state_of(together, observation), available_of(together)
            assert _kind(state) == ((4, state_size(together)), "float32")
            assert _kind(available) == ((4, len(owner)), "bool")
            choices = np.stack(
                [available[:, owner == i].sum(axis=1) for i in range(len(agents))], 1
            )
            least = np.array([len(agent.action.choices) for agent in agents])
            assert (choices >= np.maximum(least, 1)).all()
            idle = ~alive & (least > 0) & ~np.array(ended)
            assert (choices == least)[idle].all()
            np.testing.assert_array_equal(state_of(again, observation), state)
            np.testing.assert_array_equal(available_of(again), available)
            np.testing.assert_array_equal(state_of(alone, single)[0], state[2])
            np.testing.assert_array_equal(available_of(alone)[0], available[2])
            action = act(observation)
            step = together.step(action)
            observation, alive, ended = step.observation, step.alive, bool(step.ended.any())
            again.step(action)
            single_step = alone.step(action[2:3])
            single = single_step.observation
            for many, one in zip(_parts(step), _parts(single_step), strict=True):
                np.testing.assert_array_equal(many[2], one[0])
            if ended:
                return
        pytest.fail("no episode ended")

    def test_an_unavailable_action_is_refused_unless_actions_are_relaxed(self, made: Made) -> None:
        """A policy that ignores the mask is found at once."""
        environment = made(1)
        act = _Random(environment, 0)
        observation = environment.reset([1], [0])
        for _ in range(STEPS):
            available, start = available_of(environment), 0
            for agent in environment.agents:
                part = slice(start, start + agent.action.size)
                start = part.stop
                relaxed = not isinstance(agent.action, Discrete) or agent.action.relaxed
                if not relaxed and not available[0, part].all():
                    action = act(observation)
                    action[0, part] = np.eye(agent.action.size)[available[0, part].argmin()]
                    with pytest.raises(EnvironmentFailed, match=f"{agent.name} of copy 0 chose"):
                        environment.step(action)
                    return
            step = environment.step(act(observation))
            observation = step.observation
            if step.ended[0]:
                return

    def test_a_negative_number_of_agents_is_a_configuration_error(self, made: Made) -> None:
        """A user reads one line."""
        with pytest.raises(ConfigError):
            replace(made, agents=-1)(1)


class _Random:
    """The random policy among the actions that are available now."""

    def __init__(self, environment: Environment, seed: int) -> None:
        self._environment = environment
        self._act = random_actions(environment.agents, seed=seed)

    def __call__(self, observation: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Choose actions."""
        return self._act(observation, available_of(self._environment))


def _parts(step: Step) -> list[np.ndarray[Any, Any]]:
    return list(step)


def _kind(array: np.ndarray[Any, Any]) -> tuple[tuple[int, ...], str]:
    return array.shape, str(array.dtype)
