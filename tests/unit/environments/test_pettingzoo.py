"""Any PettingZoo Parallel environment can be run, and its faults are reported in one line."""

import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pettingzoo
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from fullrank.common.errors import EnvironmentFailed
from fullrank.environments import Continuous, make_environment
from fullrank.environments import Discrete as Choice
from fullrank.environments.capabilities import offers_masks, state_of
from fullrank.environments.foreign_agents import image_of


class Counting(pettingzoo.ParallelEnv):  # type: ignore[misc]
    """Agent i of 3 observes its number of steps; arguments set the behaviour."""

    metadata: ClassVar[dict[str, Any]] = {"name": "counting"}

    def __init__(
        self,
        *,
        observation: Callable[[int], Any] = lambda steps: np.full(2, steps, dtype=np.float32),
        observation_space: gymnasium.Space[Any] | None = None,
        action_space: gymnasium.Space[Any] | None = None,
        last_step: tuple[int, int, int] = (9, 9, 9),
        truncate: bool = False,
        late: bool = False,
        reward: float = 1.0,
        received: list[dict[str, Any]] | None = None,
        masks: Callable[[int], Any] | None = None,
        state: Callable[[int], Any] | None = None,
    ) -> None:
        self.possible_agents = ["red_0", "red_1", "blue_0"]
        self.agents: list[str] = []
        self._observation = observation
        self._observation_space = observation_space or Box(-np.inf, np.inf, (2,))
        self._action_space = action_space or Discrete(2)
        self._last_step = dict(zip(self.possible_agents, last_step, strict=True))
        self._truncate, self._late, self._reward = truncate, late, reward
        self._received = [] if received is None else received
        self._masks, self._state = masks, state
        if state is not None:
            self.state_space = Box(-np.inf, np.inf, np.shape(state(0)))

    def _infos(self) -> dict[str, Any]:
        masks = self._masks
        return {
            a: {} if masks is None else {"action_mask": masks(self._steps)} for a in self.agents
        }

    def state(self) -> Any:
        assert self._state is not None
        return self._state(self._steps)

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return self._observation_space

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return self._action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self._steps = 0
        self.agents = self.possible_agents[: 2 if self._late else 3]
        return {a: self._observation(0) for a in self.agents}, self._infos()

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) == set(self.agents)
        self._received.append(actions)
        self._steps += 1
        acted = self.agents
        over = {a: self._steps >= self._last_step[a] for a in acted}
        never = dict.fromkeys(acted, False)
        self.agents = [a for a in acted if not over[a]]
        ends = (never, over) if self._truncate else (over, never)
        seen = {a: self._observation(self._steps) for a in acted}
        return seen, dict.fromkeys(acted, self._reward), *ends, self._infos()


class Clinging(Counting):
    """Counting that fails to close after a step, and in its third step if asked to."""

    closed: ClassVar[list[str]] = []

    def __init__(self, *, name: str = "", stalls: bool = False) -> None:
        super().__init__(observation=self._stall if stalls else np.ones_like)
        self._observation_space = Box(-np.inf, np.inf, ())
        self._name = name

    @staticmethod
    def _stall(steps: int) -> Any:
        return np.array(1 / (3 - steps), np.float32)

    def close(self) -> None:
        self.closed.append(self._name)
        if getattr(self, "_steps", 0):
            raise RuntimeError("the window\nstays open")


class Deserted(Counting):
    """Counting without agents."""

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = []


def raises_at_two(**_: Any) -> Counting:
    def observation(steps: int) -> Any:
        if steps == 2:
            raise RuntimeError("the\nengine stalled")
        return np.zeros(2)

    return Counting(observation=observation)


class Muddled(Counting):
    """Counting whose second step answers for other agents than its own."""

    def __init__(self, *, gone: str = "", came: str = "", **others: Any) -> None:
        super().__init__(**others)
        self._gone, self._came = gone, came

    def step(self, actions: dict[str, Any]) -> Any:
        seen, rewards, *others = super().step(actions)
        if self._steps == 2:
            seen |= {self._came: seen["red_0"]} if self._came else {}
            rewards.pop(self._gone, None)
        return seen, rewards, *others


def exits(**_: Any) -> Counting:
    def observation(steps: int) -> Any:
        return np.zeros(2) if steps < 2 else sys.exit("no licence")

    return Counting(observation=observation)


def not_parallel() -> Counting:
    return object()  # type: ignore[return-value]


def says_nothing(**_):  # type: ignore[no-untyped-def]
    raise AssertionError("it was called")


def for_type_checkers() -> "absent.ParallelEnv":  # type: ignore[name-defined]  # noqa: F821
    return Counting()


def parallel_env(**arguments):  # type: ignore[no-untyped-def]
    return Counting(**arguments)


HERE = __name__


def counting(*, copies: int = 1, **arguments: Any) -> Any:
    return make_environment(f"{HERE}:Counting", copies=copies, **arguments)


def still(environment: Any) -> np.ndarray[Any, Any]:
    size = sum(agent.action.size for agent in environment.agents)
    return np.zeros((environment.copies, size), dtype=np.float32)


MPE = [
    ("mpe2.simple_spread_v3", {"N": 4}),
    ("mpe2.simple_spread_v3", {"continuous_actions": True}),
    ("mpe2.simple_speaker_listener_v4", {}),
    ("mpe2.simple_tag_v3", {"continuous_actions": True}),
]


@pytest.mark.parametrize(("module", "arguments"), MPE, ids=str)
def test_the_adapter_shows_what_the_environment_does(
    module: str, arguments: dict[str, Any]
) -> None:
    package = pytest.importorskip(module, reason="needs the extra mpe")
    direct = package.parallel_env(max_cycles=6, **arguments)
    adapted = make_environment(f"{module}:parallel_env", copies=2, max_cycles=6, **arguments)
    names = direct.possible_agents
    sizes = [agent.action.size for agent in adapted.agents]
    generator = np.random.default_rng(0)
    seen, _ = direct.reset(seed=5)
    observation = adapted.reset([4, 5], [0, 1])
    np.testing.assert_array_equal(np.concatenate([seen[a] for a in names]), observation[1])
    np.testing.assert_array_equal(state_of(adapted, observation)[1], direct.state())
    for t in range(6):
        actions: dict[str, Any] = {}
        packed = []
        for name, size in zip(names, sizes, strict=True):
            if arguments.get("continuous_actions"):
                actions[name] = generator.random(size, dtype=np.float32)
                packed.append(actions[name])
            else:
                actions[name] = int(generator.integers(size))
                packed.append(np.eye(size, dtype=np.float32)[actions[name]])
        seen, reward, terminated, _, _ = direct.step(actions)
        step = adapted.step(np.tile(np.concatenate(packed), (2, 1)))
        np.testing.assert_array_equal(np.concatenate([seen[a] for a in names]), step.observation[1])
        assert step.reward[1].tolist() == [reward[a] for a in names]
        assert step.terminated[1].tolist() == [terminated[a] for a in names]
        assert step.ended.tolist() == [t == 5] * 2
        np.testing.assert_array_equal(state_of(adapted, observation)[1], direct.state())
        assert not np.array_equal(step.observation[0], step.observation[1])


def test_an_agent_that_terminates_early_is_silent_until_the_others_end() -> None:
    environment = counting(last_step=(1, 3, 3))
    environment.reset([0], [0])
    first, second, third = (environment.step(still(environment)) for _ in range(3))
    assert first.terminated.tolist() == [[True, False, False]]
    assert first.alive.tolist() == second.alive.tolist() == [[False, True, True]]
    assert first.observation.tolist() == [[0, 0, 1, 1, 1, 1]]
    assert second.reward.tolist() == [[0, 1, 1]]
    assert second.terminated.tolist() == [[False] * 3]
    assert [s.ended[0] for s in (first, second, third)] == [False, False, True]


def test_a_truncated_agent_shows_its_last_observation_and_is_not_terminal() -> None:
    environment = counting(last_step=(1, 2, 2), truncate=True)
    environment.reset([0], [0])
    first, second = (environment.step(still(environment)) for _ in range(2))
    assert not first.terminated.any()
    assert first.alive.tolist() == [[False, True, True]]
    assert first.observation.tolist() == [[1, 1, 1, 1, 1, 1]]
    assert second.observation.tolist() == [[0, 0, 2, 2, 2, 2]]
    assert second.ended.tolist() == [True]


def test_observations_of_any_space_are_flattened() -> None:
    nested = Dict({"grid": Box(0, 9, (2, 2)), "mode": Discrete(3)})
    environment = counting(
        observation_space=nested,
        observation=lambda steps: {"grid": np.full((2, 2), steps + 1.0), "mode": 2},
    )
    assert [agent.observation_size for agent in environment.agents] == [7, 7, 7]
    assert environment.reset([0], [0])[0, :7].tolist() == [1, 1, 1, 1, 0, 0, 1]


def test_actions_reach_the_environment_in_its_own_terms() -> None:
    received: list[dict[str, Any]] = []
    box = Box(np.array([[-1.0, 0.0]]), np.array([[1.0, 2.0]]), dtype=np.float64)
    boxed = counting(action_space=box, received=received)
    assert boxed.agents[0].action == Continuous((-1.0, 0.0), (1.0, 2.0))
    boxed.reset([0], [0])
    boxed.step(np.array([[0.5, 0.5, 5.0, -5.0, 0.0, 0.0]], dtype=np.float32))
    assert [a.tolist() for a in received[0].values()] == [[[0.5, 0.5]], [[1, 0]], [[0, 0]]]
    numbered = counting(action_space=Discrete(3, start=7), received=received)
    assert numbered.agents[0].action == Choice(3)
    numbered.reset([0], [0])
    numbered.step(np.eye(3, dtype=np.float32).reshape(1, -1))
    assert list(received[1].values()) == [7, 8, 9]


def parity(steps: int) -> Any:
    """Alternately permit actions 0 and 1 of two."""
    return np.array([steps % 2 == 0, steps % 2 == 1], dtype=np.int8)


@pytest.mark.parametrize("inside", [True, False], ids=["observation", "infos"])
def test_action_masks_are_read_from_observations_or_infos(inside: bool) -> None:
    seen = Box(-np.inf, np.inf, (2,))
    nested = Dict({"observation": seen, "action_mask": Box(0, 1, (2,), np.int8)})

    def both(steps: int) -> Any:
        return {"observation": np.full(2, steps, np.float32), "action_mask": parity(steps)}

    within = {"observation_space": nested, "observation": both}
    environment = counting(last_step=(1, 3, 3), **(within if inside else {"masks": parity}))
    assert [agent.observation_size for agent in environment.agents] == [2, 2, 2]
    environment.reset([0], [0])
    assert environment.available().tolist() == [[True, False] * 3]
    assert offers_masks(environment)
    step = environment.step(np.array([[1, 0] * 3], dtype=np.float32))
    assert step.observation.tolist() == [[0, 0, 1, 1, 1, 1]]
    # red_0 is gone: action 0 stands for its no-op
    assert environment.available().tolist() == [[True, False, False, True, False, True]]
    with pytest.raises(EnvironmentFailed, match="red_1 of copy 0 chose action 0, which is not"):
        environment.step(np.array([[1, 0] * 3], dtype=np.float32))


def test_agents_that_a_time_limit_stops_keep_the_actions_of_their_last_state() -> None:
    nested = Dict({"observation": Box(-1, 9, (2,)), "action_mask": Box(0, 1, (2,), np.int8)})

    def both(steps: int) -> Any:
        return {"observation": np.zeros(2, np.float32), "action_mask": parity(steps)}

    last = {False: [[True, False] * 3], True: [[False, True] * 3]}
    for truncate in (True, False):
        environment = counting(
            last_step=(1, 1, 1), truncate=truncate, observation_space=nested, observation=both
        )
        environment.reset([0], [0])
        assert environment.step(np.array([[1, 0] * 3], np.float32)).ended.all()
        assert environment.available().tolist() == last[truncate]


def test_a_state_space_makes_the_state_known() -> None:
    environment = counting(copies=2, state=lambda steps: np.full((2, 2), steps, np.float32))
    environment.reset([0, 1], [0, 1])
    environment.step(still(environment))
    assert environment.state_size == 4
    assert environment.state().tolist() == [[1.0] * 4] * 2
    stateless = counting()
    observation = stateless.reset([0], [0])
    assert stateless.state_size == observation.shape[1]
    np.testing.assert_array_equal(stateless.state(), observation)


@pytest.mark.parametrize(
    ("factory", "arguments", "told"),
    [
        ("nowhere.at_all:make", {}, "nowhere.at_all:make cannot be imported: ModuleNotFoundError"),
        (f"{HERE}:absent", {}, "cannot be imported: AttributeError"),
        (f"{HERE}:not_parallel", {}, "object is not a PettingZoo Parallel environment"),
        (f"{HERE}:says_nothing", {}, "is not called: TypeError: it does not say that it makes"),
        ("subprocess:Popen", {"args": ["false"]}, "is not called: TypeError: it does not say"),
        ("shutil:rmtree", {"path": "/nowhere/at/all"}, "is not called: TypeError"),
        ("builtins:eval", {"source": "1 / 0"}, "is not called: TypeError"),
        ("os:environ", {}, "is not called: TypeError"),
        (f"{HERE}:Counting", {"unknown": 1}, "cannot be used: TypeError"),
        (f"{HERE}:Counting", {"action_space": Text(3)}, "actions of Text"),
        (f"{HERE}:Counting", {"action_space": Box(-np.inf, 1, (1,))}, "finite boxes"),
        (f"{HERE}:Deserted", {}, "cannot be used: TypeError: it has no agents"),
        (f"{HERE}:Counting", {"late": True}, r"agents that join later .*blue_0"),
        (f"{HERE}:raises_at_two", {}, "copy 0: .* in step 2 of seed 7: RuntimeError: the eng"),
        (f"{HERE}:exits", {}, "copy 0: .* in step 2 of seed 7: SystemExit: no licence"),
        (f"{HERE}:Muddled", {"gone": "red_1"}, "step 2 .*: red_1: there is no reward"),
        (f"{HERE}:Muddled", {"came": "grey_0"}, "step 2 .*: grey_0 is not one of its possible_ag"),
        (f"{HERE}:Counting", {"reward": np.nan}, "failed in step 1 of seed 7: .*: a reward"),
        (f"{HERE}:Counting", {"observation": lambda _: np.array([0, np.inf])}, "not finite"),
        (f"{HERE}:Counting", {"observation": lambda _: np.zeros((1, 2))}, r"shape \(1, 2\), not"),
        (f"{HERE}:Counting", {"masks": lambda _: np.ones(3)}, r"mask has shape \(3,\), not \(2,\)"),
        (f"{HERE}:Counting", {"masks": lambda _: np.zeros(2)}, "permits no action"),
    ],
)
def test_a_fault_is_one_line_that_names_the_factory(
    factory: str, arguments: dict[str, Any], told: str
) -> None:
    def play() -> None:
        environment = make_environment(factory, copies=1, **arguments)
        environment.reset([7], [0])
        for _ in range(3):
            environment.step(still(environment))

    with pytest.raises(EnvironmentFailed, match=told) as caught:
        play()
    assert factory in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("stalls", [False, True])
def test_all_copies_are_closed_and_the_first_error_is_told_in_one_line(stalls: bool) -> None:
    def play() -> None:
        environment = make_environment(f"{HERE}:Clinging", copies=3, stalls=stalls)
        with closing(environment):
            environment.reset([5, 6, 7], [0, 1, 2])
            Clinging.closed.clear()
            for _ in range(3):
                environment.step(still(environment))

    told = "in step 3 of seed 5: ZeroDivision" if stalls else "to close: RuntimeError: the window s"
    with pytest.raises(EnvironmentFailed, match=f"^copy 0: {HERE}:Clinging failed {told}"):
        play()
    assert len(Clinging.closed) == 3


@pytest.mark.parametrize("shape", [(4, 84, 84), (84, 84)])
def test_an_image_whose_channels_are_not_last_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(TypeError, match="put the channels last"):
        image_of(Box(0, 255, shape, np.uint8))
    assert image_of(Box(0, 255, (84, 84, 4), np.uint8)) == (84, 84, 4)
    assert image_of(Box(0, 1, (2, 8, 8), np.uint8)) == (2, 8, 8)  # planes of a board
    assert image_of(Box(0, 1, (4, 84), np.uint8)) is None


BYTES, WHOLE = Box(0, 255, (2,), np.uint8), Box(-9, 9, (2,), np.int32)


@pytest.mark.parametrize(
    ("space", "observation", "told"),
    [
        (WHOLE, [np.nan, 3.0], "an observation has nan, which int32, its type, cannot be"),
        (WHOLE, [0.5, 3.0], "an observation has 0.5, which int32"),
        (WHOLE, [1e300, 3.0], r"an observation has 1e\+300, which int32"),
        (BYTES, [0.25, 0.75], "an observation has 0.25, which uint8"),
        (BYTES, [300, 0], "an observation has 300, which uint8"),
        (BYTES, [0.0, -1.0], "an observation has -1.0, which uint8"),
        (Dict({"grid": BYTES}), {"grid": [300, 0]}, "an observation has 300, which uint8"),
        (Tuple((WHOLE, BYTES)), ([np.inf, 0], [0, 0]), "an observation has inf, which int32"),
        (Discrete(4), -1, r"an observation is -1, which is not in Discrete\(4\)"),
        (Dict({"mode": Discrete(4)}), {"mode": np.int64(-1)}, "an observation is -1, which is"),
        (MultiDiscrete([3, 3]), [3, 0], r"an observation is \[3 0\], which is not in Multi"),
        (MultiBinary(2), [2, 0], r"an observation is \[2 0\], which is not in Multi"),
    ],
)
def test_what_the_type_of_a_space_would_change_is_refused_in_one_line(
    space: gymnasium.Space[Any], observation: Any, told: str
) -> None:
    environment = counting(observation_space=space, observation=lambda _: observation)
    with pytest.raises(EnvironmentFailed, match=f"copy 0: .* seed 7: ValueError: red_0: {told}"):
        environment.reset([7], [0])


def test_whole_numbers_in_any_type_are_observed_as_they_are() -> None:
    space = Tuple((BYTES, Discrete(3, start=-1), MultiDiscrete([2, 3]), MultiBinary(2)))
    seen = ([0.0, 255.0], np.int8(-1), np.array([1, 2], np.uint8), [True, False])
    environment = counting(observation_space=space, observation=lambda _: seen)
    told = [0, 255, 1, 0, 0, 0, 1, 0, 0, 1, 1, 0]
    assert environment.reset([0], [0])[0, :12].tolist() == told


def test_a_state_that_is_not_finite_is_refused_with_copy_step_and_seed() -> None:
    environment = counting(copies=2, state=lambda steps: [np.nan if steps else 0, 1])
    environment._instances[1]._state_space = WHOLE
    environment.reset([6, 7], [0, 1])
    environment._instances[1].step(still(environment)[1], np.ones(3, bool))
    told = "copy 1: .* has no state after step 1 of seed 7: ValueError: an observation has nan"
    with pytest.raises(EnvironmentFailed, match=told):
        environment.state()


@pytest.mark.parametrize("factory", ["Counting", "parallel_env", "for_type_checkers"])
def test_a_class_an_annotated_function_and_pettingzoo_s_own_name_are_factories(
    factory: str,
) -> None:
    assert len(make_environment(f"{HERE}:{factory}", copies=1).agents) == 3
