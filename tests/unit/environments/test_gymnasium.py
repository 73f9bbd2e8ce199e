"""Any gymnasium environment with a part of its spaces for each agent can be run."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

from fullrank.common.errors import EnvironmentFailed
from fullrank.environments import Continuous, make_environment, variant_of
from fullrank.environments import Discrete as Choice
from fullrank.environments.capabilities import shares_reward
from fullrank.training.evaluation import evaluate, random_actions

OBSERVATIONS = Tuple((Box(-9.0, 9.0, (2,)), Box(-9.0, 9.0, (2,))))
ACTIONS = Tuple((Discrete(3, start=5), Box(0.0, 1.0, (1,))))


class Pair(gymnasium.Env[Any, Any]):
    """Two agents observe the number of steps; arguments set the behaviour."""

    def __init__(
        self,
        *,
        observation: Callable[[int], Any] = lambda steps: np.full(2, steps, dtype=np.float32),
        observation_space: Any = OBSERVATIONS,
        action_space: Any = ACTIONS,
        reward: Any = (1.0, 2.0),
        last_step: Any = 3,
        truncate: bool = False,
        received: list[Any] | None = None,
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self._observation, self._reward = observation, reward
        self._last_step, self._truncate = last_step, truncate
        self._received = [] if received is None else received

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._steps = 0
        return (self._observation(0),) * 2, {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        self._received.append(action)
        over = self._steps >= np.asarray(self._last_step)
        ends = (False, over) if self._truncate else (over, False)
        return (self._observation(self._steps),) * 2, self._reward, *ends, {}


class Clinging(Pair):
    """Pair that fails to close after two steps."""

    def close(self) -> None:
        if self._steps == 2:
            raise RuntimeError("the window stays open")


MASKED = Dict({"steps": Box(-9.0, 9.0, (1,)), "action_mask": MultiBinary(4)})


class Strict(gymnasium.Env[Any, Any]):
    """Two agents, each of which may choose the number of steps alone."""

    observation_space = Tuple((MASKED, MASKED))
    action_space = Tuple((Discrete(4), Discrete(4)))
    open = 0

    def _seen(self) -> Any:
        mask = np.eye(4, dtype=np.int8)[self._steps % 4]
        return ({"steps": np.full(1, self._steps, np.float32), "action_mask": mask},) * 2

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        Strict.open += 1
        self._steps = 2
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        if action != (self._steps % 4,) * 2:
            raise ValueError(f"illegal action {action}")
        self._steps += 1
        return self._seen(), 1.0, self._steps == 6, False, {}

    def close(self) -> None:
        Strict.open -= 1


for made in (Pair, Clinging, Strict):
    gymnasium.register(f"{made.__name__}-v0", entry_point=f"{__name__}:{made.__name__}")


def pair(*, copies: int = 1, **arguments: Any) -> Any:
    return make_environment("gymnasium", copies=copies, id="Pair-v0", arguments=arguments)


ACTION = np.array([[0.0, 1.0, 0.0, 0.5]], dtype=np.float32)


def test_the_adapter_shows_what_the_environment_does() -> None:
    received: list[Any] = []
    environment = pair(received=received)
    assert [agent.action for agent in environment.agents] == [Choice(3), Continuous((0.0,), (1.0,))]
    assert environment.reset([0], [0]).tolist() == [[0, 0, 0, 0]]
    steps = [environment.step(ACTION) for _ in range(3)]
    assert received[-1] == (6, np.array([0.5]))
    assert [step.reward.tolist() for step in steps] == [[[1, 2]]] * 3
    assert [step.observation.tolist() for step in steps] == [[[1] * 4], [[2] * 4], [[0] * 4]]
    assert [bool(step.terminated.all()) for step in steps] == [False, False, True]
    assert [bool(step.ended[0]) for step in steps] == [False, False, True]


def test_a_truncated_episode_shows_its_last_observation_and_is_not_terminal() -> None:
    environment = pair(truncate=True, last_step=1)
    environment.reset([0], [0])
    step = environment.step(ACTION)
    assert step.ended.all()
    assert not step.terminated.any()
    assert step.observation.tolist() == [[1] * 4]


def test_a_number_as_reward_is_shared_and_a_list_is_not() -> None:
    assert not shares_reward(pair())
    shared = pair(reward=2.0)
    assert shares_reward(shared)
    shared.reset([0], [0])
    assert shared.step(ACTION).reward.tolist() == [[2, 2]]
    played = evaluate(shared, random_actions(shared.agents, seed=0), 2, seed=0)
    assert played.returns.tolist() == [6, 6]


def test_rewards_are_tried_by_permitted_actions_alone() -> None:
    strict = make_environment("gymnasium", copies=2, id="Strict-v0")
    assert Strict.open == 0
    assert shares_reward(strict)
    played = evaluate(strict, random_actions(strict.agents, seed=0), 3, seed=0)
    assert played.returns.tolist() == [4, 4, 4]


def test_an_environment_whose_rewards_cannot_be_tried_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Strict, "open", 0)
    monkeypatch.setattr(Strict, "step", lambda *_: 1 / 0)
    with pytest.raises(EnvironmentFailed, match=r"^Strict-v0 cannot be used: ZeroDivisionError"):
        make_environment("gymnasium", copies=1, id="Strict-v0")
    assert Strict.open == 0


def test_a_reset_that_cannot_close_the_episode_before_is_refused_in_one_line() -> None:
    environment = make_environment("gymnasium", copies=1, id="Clinging-v0")
    environment.reset([0], [0])
    for _ in range(2):
        environment.step(ACTION)
    told = "^copy 0: Clinging-v0 failed to close: RuntimeError: the window stays open$"
    with pytest.raises(EnvironmentFailed, match=told):
        environment.reset([1], [0])


@pytest.mark.parametrize("truncate", [False, True])
def test_a_team_is_paid_its_number_until_its_last_agent_is_out_and_a_list_each_while_it_acts(
    truncate: bool,
) -> None:
    ends: dict[str, Any] = {"last_step": (1, 3), "truncate": truncate}
    team, each = pair(reward=2.0, **ends), pair(reward=(1.0, 2.0), **ends)
    for environment, paid in ((team, [[2, 2]] * 3), (each, [[1, 2], [0, 2], [0, 2]])):
        environment.reset([0], [0])
        assert [environment.step(ACTION).reward[0].tolist() for _ in range(3)] == paid
    played = evaluate(team, random_actions(team.agents, seed=0), 2, seed=0)
    assert played.returns.tolist() == [6, 6]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("nowhere:Pair-v0", {}, "nowhere:Pair-v0 cannot be used: ModuleNotFoundError"),
        ("Pair-v7", {}, "Pair-v7 cannot be used: VersionNotFound"),
        ("Pair-v0", {"unknown": 1}, "cannot be used: TypeError"),
        ("CartPole-v1", {}, "the observation space Box.* is not a Tuple with a part for each"),
        ("Pair-v0", {"action_space": Discrete(3)}, r"the action space Discrete\(3\) is not a"),
        (
            "Pair-v0",
            {"action_space": Tuple((Discrete(2), Tuple((Discrete(2), Box(0, 1)))))},
            "actions of Tuple",
        ),
        (
            "Pair-v0",
            {"observation_space": Tuple(()), "action_space": Tuple(())},
            "cannot be used: TypeError: it has no agents",
        ),
        ("Pair-v0", {"action_space": Tuple((Discrete(2),))}, "different numbers of parts"),
        ("Pair-v0", {"reward": (1.0, 2.0, 3.0)}, r"step 1 of seed 7: .*shape \(3,\), not \(2,\)"),
        ("Pair-v0", {"reward": (1.0, np.nan)}, "step 1 of seed 7: .*reward is not finite"),
        ("Pair-v0", {"observation": lambda _: np.array([0, np.inf])}, "observation is not finite"),
        ("Pair-v0", {"observation": lambda _: np.zeros((1, 2))}, r"shape \(1, 2\), not"),
    ],
)
def test_a_fault_is_one_line_that_names_the_environment(
    name: str, arguments: dict[str, Any], message: str
) -> None:
    def play() -> None:
        environment = make_environment("gymnasium", copies=1, id=name, arguments=arguments)
        environment.reset([7], [0])
        environment.step(ACTION)

    with pytest.raises(EnvironmentFailed, match=message) as caught:
        play()
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


FORAGING = "lbforaging:Foraging-5x5-2p-1f-coop-v3"
WAREHOUSE = "rware:rware-tiny-2ag-v2"


@pytest.fixture(params=[FORAGING, WAREHOUSE])
def real(request: pytest.FixtureRequest) -> str:
    """The id of an environment of an installed package."""
    name: str = request.param
    package = name.partition(":")[0]
    pytest.importorskip(package, reason=f"needs the package {package}")
    return name


def test_a_real_environment_is_shown_as_it_is(real: str) -> None:
    direct = gymnasium.make(real, disable_env_checker=True)
    adapted = make_environment("gymnasium", copies=2, id=real)
    observations, _ = direct.reset(seed=5)
    joint = adapted.reset([4, 5], [0, 1])
    sizes = [agent.action.size for agent in adapted.agents]
    generator, returned = np.random.default_rng(0), 0.0
    for _ in range(30):
        np.testing.assert_array_equal(np.concatenate(observations), joint[1])
        choices = [int(generator.integers(size)) for size in sizes]
        packed = [np.eye(n, dtype=np.float32)[k] for n, k in zip(sizes, choices, strict=True)]
        observations, reward, *_ = direct.step(tuple(choices))
        step = adapted.step(np.tile(np.concatenate(packed), (2, 1)))
        joint, returned = step.observation, returned + step.reward.sum()
        assert step.reward[1].tolist() == list(reward)  # type: ignore[call-overload]
    assert variant_of("gymnasium", {"id": real}) == real.partition(":")[0]
