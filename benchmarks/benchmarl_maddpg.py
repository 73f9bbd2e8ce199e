"""BenchMARL's MADDPG on Fullrank's cooperative navigation: the peer of ``learns_peers.py``.

All copies are stepped as arrays, as Fullrank steps them. An agent's action is a force, two numbers
from -1 to 1: with the five numbers from 0 to 1 of mpe2's continuous actions BenchMARL's policies
saturate at once and never recover.
"""

import tempfile
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeAlias

import numpy as np
import torch
from benchmarl.algorithms import MaddpgConfig
from benchmarl.environments.common import TaskClass
from benchmarl.experiment import Callback, Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Bounded, Categorical, Composite, Unbounded
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from fullrank.common.seeding import derive
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments.base import make_environment
from fullrank.training.evaluation import Act

FORCES = 2

Settings: TypeAlias = tuple[ExperimentConfig, MaddpgConfig, MlpConfig]


def joint_action(forces: torch.Tensor) -> FloatArray:
    """Return packed actions, of 5 entries an agent, from forces, shape (E, M, 2)."""
    sides = torch.stack([forces, -forces], dim=-1).clamp(min=0.0).flatten(-2)
    joint: FloatArray = torch.nn.functional.pad(sides, (1, 0)).flatten(1).contiguous().numpy()
    return joint


class Copies(EnvBase):  # type: ignore[misc]
    """E copies of the task as one TorchRL environment."""

    def __init__(self, agents: int, copies: int, seed: int) -> None:
        super().__init__(batch_size=torch.Size([copies]))
        self._copies = make_environment("cooperative_navigation", agents=agents, copies=copies)
        self._seed, self._episodes, self._shape = seed, 0, (copies, agents)
        size = self._copies.agents[0].observation_size
        one = (copies, agents, 1)

        def team(**specs: Any) -> Composite:
            return Composite({"agents": Composite(specs, shape=self._shape)}, shape=self.batch_size)

        self.action_spec = team(action=Bounded(-1.0, 1.0, shape=(copies, agents, FORCES)))
        self.observation_spec = team(observation=Unbounded(shape=(copies, agents, size)))
        self.reward_spec = team(reward=Unbounded(shape=one))
        flag = Categorical(n=2, dtype=torch.bool, shape=(copies, 1))
        self.done_spec = Composite(
            {"done": flag.clone(), "terminated": flag.clone(), "truncated": flag.clone()},
            shape=self.batch_size,
        )

    def _reset(self, tensordict: TensorDictBase | None = None, **_: Any) -> TensorDictBase:
        chosen = np.ones(self._shape[0], dtype=bool)
        if tensordict is not None and "_reset" in tensordict:
            chosen = tensordict["_reset"].view(-1).numpy()
        indices = np.flatnonzero(chosen).tolist()
        seeds = [derive(self._seed, "peer", self._episodes + n) for n in range(len(indices))]
        self._episodes += len(indices)
        return self._data(self._copies.reset(seeds, indices), np.zeros(len(chosen), dtype=bool))

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        step = self._copies.step(joint_action(tensordict["agents", "action"]))
        data = self._data(step.observation, step.ended)
        reward = torch.from_numpy(step.reward.astype(np.float32)).unsqueeze(-1)
        data["agents", "reward"] = reward
        return data

    def _data(self, observation: Any, ended: Any) -> TensorDict:
        """Observations, and the end of episodes by their time limit."""
        truncated = torch.from_numpy(ended.copy()).unsqueeze(-1)
        data = Navigation.observed(torch.from_numpy(observation.copy()).view(*self._shape, -1))
        return data.update(
            {
                "done": truncated,
                "truncated": truncated.clone(),
                "terminated": torch.zeros_like(truncated),
            }
        )

    def _set_seed(self, seed: int | None) -> None:
        self._seed = seed or 0


class Navigation(TaskClass):  # type: ignore[misc]
    """The task; its configuration names the number of agents."""

    @staticmethod
    def observed(observation: torch.Tensor) -> TensorDict:
        """Observations of all agents, shape (E, M, size), as the task's policies read them."""
        team = TensorDict({"observation": observation}, batch_size=observation.shape[:2])
        return TensorDict({"agents": team}, batch_size=observation.shape[:1])

    def get_env_fun(
        self, num_envs: int, continuous_actions: bool, seed: int | None, device: Any
    ) -> Callable[[], EnvBase]:
        """Make copies that are stepped together."""
        return lambda: Copies(self.config["agents"], num_envs, seed or 0)

    def supports_continuous_actions(self) -> bool:
        """Return True: the actions are continuous."""
        return True

    def supports_discrete_actions(self) -> bool:
        """Return False: the actions are continuous."""
        return False

    def max_steps(self, env: EnvBase) -> int:
        """Return the horizon."""
        return 25

    def has_render(self, env: EnvBase) -> bool:
        """Return False: there are no pictures."""
        return False

    def group_map(self, env: EnvBase) -> dict[str, list[str]]:
        """Return one group of all agents."""
        return {"agents": [f"agent_{index}" for index in range(self.config["agents"])]}

    def observation_spec(self, env: EnvBase) -> Composite:
        """Return the observations of the group."""
        return env.full_observation_spec_unbatched

    def action_spec(self, env: EnvBase) -> Composite:
        """Return the actions of the group."""
        return env.full_action_spec_unbatched

    def info_spec(self, env: EnvBase) -> Composite | None:
        """Return None: steps carry no further information."""
        return None

    def state_spec(self, env: EnvBase) -> Composite | None:
        """Return None: critics read the joint observation."""
        return None

    def action_mask_spec(self, env: EnvBase) -> Composite | None:
        """Return None: every action is available."""
        return None

    @staticmethod
    def env_name() -> str:
        """Return the name that BenchMARL prints."""
        return "fullrank"


class Look(Callback):  # type: ignore[misc]
    """Show the greedy policy to an observer after every training phase.

    Args:
        look: Takes the environment steps and updates so far, and the policy.
    """

    def __init__(self, look: Callable[[int, int, Act], None]) -> None:
        super().__init__()
        self._look, self._updates = look, 0

    def on_train_end(self, training_td: TensorDictBase, group: str) -> None:
        """Call the observer."""
        self._updates += len(training_td)
        policy = self.experiment.group_policies[group]
        agents = len(self.experiment.group_map[group])

        @torch.no_grad()
        def act(observation: FloatArray, available: BoolArray | None = None) -> FloatArray:
            seen = torch.from_numpy(observation).view(len(observation), agents, -1)
            with set_exploration_type(ExplorationType.DETERMINISTIC):
                played = policy(Navigation.observed(seen))
            return joint_action(played[group, "action"])

        self._look(self.experiment.total_frames, self._updates, act)


def shipped() -> Settings:
    """BenchMARL's own settings."""
    return (
        ExperimentConfig.get_from_yaml(),
        MaddpgConfig.get_from_yaml(),
        MlpConfig.get_from_yaml(),
    )


def settings(*, alike: bool) -> Settings:
    """Settings of a training.

    Args:
        alike: True for Fullrank's networks, batch, rates and collection; else as shipped.
    """
    config, algorithm, model = shipped()
    config.loggers, config.create_json, config.evaluation = [], False, False
    config.max_n_frames, config.exploration_anneal_frames = 100_000_000, 1_000_000
    if alike:
        config.lr, config.gamma, config.polyak_tau, config.clip_grad_val = 0.001, 0.95, 0.02, 0.5
        config.off_policy_n_envs_per_worker = 100
        config.off_policy_collected_frames_per_batch, config.off_policy_n_optimizer_steps = 2500, 25
        config.off_policy_train_batch_size, config.off_policy_init_random_frames = 256, 25_000
        config.exploration_anneal_frames = 400_000
        config.share_policy_params = algorithm.share_param_critic = False
        model.num_cells, model.activation_class = [128, 128], torch.nn.ReLU
    return config, algorithm, model


def changes(*, alike: bool) -> list[str]:
    """Settings of a training that differ from BenchMARL's own, each with both values."""
    pairs = zip(shipped(), settings(alike=alike), strict=True)
    return [
        f"`{name}` {_shown(value)} for {_shown(before)}"
        for old, new in pairs
        for (name, before), value in zip(asdict(old).items(), asdict(new).values(), strict=True)
        if before != value
    ]


def _shown(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else f"{value}"


def train(look: Callable[[int, int, Act], None], *, agents: int, seed: int, alike: bool) -> None:
    """Train until ``look`` raises.

    Args:
        look: Takes the environment steps and updates so far, and the greedy policy.
        agents: M.
        seed: Seed of the experiment.
        alike: True for Fullrank's networks, batch, rates and collection; else as shipped.
    """
    config, algorithm, model = settings(alike=alike)
    with tempfile.TemporaryDirectory() as folder:
        config.save_folder = folder
        Experiment(
            task=Navigation("NAVIGATION", {"agents": agents}),
            algorithm_config=algorithm,
            model_config=model,
            seed=seed,
            config=config,
            callbacks=[Look(look)],
        ).run()
