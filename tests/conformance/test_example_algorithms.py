"""The examples of algorithms from outside keep the laws, in one short file each."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.unit.algorithms import plain_values as plain

from fullrank.algorithms import EnvironmentSpec, algorithms
from fullrank.algorithms.actor_critic import ActorCritic
from fullrank.algorithms.base import layout_of
from fullrank.algorithms.groups import Networks, initial_parameters
from fullrank.algorithms.trajectories import Trajectories
from fullrank.algorithms.transitions import Draws, Transitions
from fullrank.algorithms.values import ValueLearner
from fullrank.common.errors import ConfigError
from fullrank.config import load
from fullrank.conformance import AlgorithmLaws
from fullrank.conformance.subjects import Subject
from fullrank.environments import AgentSpec, Discrete, MultiDiscrete
from fullrank.replay.episodes import episodes_in

from .algorithm_cases import FEW_CODES

EXAMPLES = Path(__file__).parents[2] / "examples"
MOST_LINES = 120
FILES = {path.stem: path for path in EXAMPLES.glob("*/*.py") if not path.stem.startswith("test_")}
SETTINGS = {"hysteretic": {"micro_batches": 2}}


def test_each_is_one_short_file() -> None:
    assert FILES.keys() == {"matd3", "facmac", "hysteretic", "ia2c"}
    for path in FILES.values():
        assert len(path.read_text().splitlines()) <= MOST_LINES, path


@pytest.mark.parametrize(
    ("name", "like"),
    [("matd3", "maddpg"), ("facmac", "maddpg"), ("hysteretic", "iql"), ("ia2c", "ippo")],
)
def test_sizes_of_a_run_are_those_of_algorithms_that_learn_alike(
    name: str, like: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(name, monkeypatch)
    own, other = (load(options={"algorithm.name": each}).config for each in (name, like))
    assert (own.iterations, own.collect) == (other.iterations, other.collect)
    assert own.environment.copies == other.environment.copies


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FILES[name].parent))
    if name not in sys.modules:
        import_module(name)


def test_hysteretic_records_the_loss_that_it_minimises_and_means_of_valid_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imported("hysteretic", monkeypatch)
    learner = algorithms.build("hysteretic", hidden=8, forgiveness=0.25)
    assert isinstance(learner, ValueLearner)
    nets = learner.initial(plain.ENVIRONMENT, seed=0, device=torch.device("cpu"))
    layout = learner.layout(plain.ENVIRONMENT)
    rows = plain.played(layout, 4)
    episodes = [rows[place] for place in episodes_in(rows, layout.length)]
    batch = Trajectories.of(episodes, layout, device=torch.device("cpu"))
    losses, told = learner.losses(nets, batch)
    values = learner.values(nets.agent[0], batch).detach().double().numpy()
    after = learner.values(nets.target_agent[0], batch).detach()
    own, errors = [], []
    for number, episode in enumerate(episodes):
        for step in range(len(episode) - 1):
            for agent in range(layout.agents):
                choices = batch.available[step + 1, number, agent].numpy()
                judged = np.where(choices, values[step + 1, number, agent], -np.inf)
                best = float(after[step + 1, number, agent, judged.argmax()]) * choices.any()
                action = int(batch.action[step, number, agent])
                own.append(values[step, number, agent, action] if action >= 0 else 0.0)
                goes_on = float(batch.continues[step, number])
                reward = float(batch.reward[step, number])
                errors.append(reward + learner.discount * goes_on * best - own[-1])
    error = np.array(errors)
    expected = {
        "loss": float((np.where(error < 0, 0.25, 1.0) * error**2).mean()),
        "td_error_abs": float(np.abs(error).mean()),
        "q_values": float(np.mean(own)),
    }
    assert {name: float(each) for name, each in told.items()} == pytest.approx(expected, rel=1e-4)
    assert float(told["loss"]) == losses["agent"].item()


@pytest.mark.parametrize("iteration", [0, 1])
def test_matd3_records_losses_and_values_by_cleanrl_s_names_also_between_its_policy_s_updates(
    iteration: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported("matd3", monkeypatch)
    learner = algorithms.build("matd3", hidden=8)
    assert isinstance(learner, ActorCritic)
    agents, device = plain.ENVIRONMENT.agents, torch.device("cpu")
    networks, groups = partial(learner.networks, plain.ENVIRONMENT), ((0,), (1,), (2,))
    parameters = initial_parameters(networks, groups, seed=0, device=device)
    nets = Networks(networks, groups, parameters)
    rows = layout_of(agents).synthetic(np.random.default_rng(0), 16)
    batch = Transitions(rows, agents, device=device)
    draws = Draws(agents, seed=0, key=(iteration,), device=device)
    found = learner.losses(1, nets, batch, draws)
    assert isinstance(found, tuple)
    losses, told = found
    assert ("policy" in losses) == (iteration == 0)
    seen = torch.cat([*batch.observation, *batch.action], 1)
    outputs = nets.policy[1](batch.observation[1])
    actions = list(batch.action)
    actions[1] = draws.action("policy_action", 1, outputs)
    played = torch.cat([*batch.observation, *actions], 1)
    score = learner.logit_penalty * outputs.square().mean(1) - nets.critic_1[1](played)[:, 0]
    expected = {
        "qf1_values": (batch.weight[1] * nets.critic_1[1](seen)[:, 0]).sum().item(),
        "qf2_values": (batch.weight[1] * nets.critic_2[1](seen)[:, 0]).sum().item(),
        "qf1_loss": losses["critic_1"].item(),
        "qf2_loss": losses["critic_2"].item(),
        "actor_loss": (batch.weight[1] * score).sum().item(),
    }
    named = {name: torch.as_tensor(each).item() for name, each in told.items()}
    assert named == pytest.approx(expected, rel=1e-5)
    assert losses.get("policy", told["actor_loss"]) == told["actor_loss"]


def test_ia2c_says_which_actions_it_refuses_and_that_it_does_not_export(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imported("ia2c", monkeypatch)
    hand = AgentSpec(name="hand", observation_size=3, action=MultiDiscrete((2, 3)))
    with pytest.raises(ConfigError, match=r"^hand has several actions at once, and IA2C learns"):
        algorithms.build("ia2c").problem(EnvironmentSpec(agents=(hand,)))
    spec = EnvironmentSpec(agents=(replace(hand, action=Discrete(2)),))
    actor = algorithms.build("ia2c", hidden=4).make(spec, seed=0, device="cpu").actor
    with pytest.raises(ConfigError, match="perceptrons with ReLU between their layers"):
        actor.policy(0)


@pytest.mark.integration
class TestExamples(AlgorithmLaws):
    @pytest.fixture(params=sorted(FILES))
    def subject(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Subject:
        name = str(request.param)
        imported(name, monkeypatch)
        return Subject(name, SETTINGS.get(name, {}))

    @pytest.fixture
    def tried(self) -> Sequence[str]:
        return FEW_CODES
