"""Play an episode with policies exported by ``fullrank export RUN --format onnx``.

python examples/play_onnx.py runs/mine/export/onnx

A recurrent policy, as of QMIX, has a state, which is zero when an episode begins.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import MultiDiscrete, Space
from onnxruntime import InferenceSession

from fullrank.environments.parallel import parallel_env


class Player:
    """An agent with the policy of a file, for one episode.

    The space of its actions tells the sizes of its choices.
    """

    def __init__(self, path: Path, space: Space[Any]) -> None:
        self.policy = InferenceSession(path)
        self.choices = space.nvec if isinstance(space, MultiDiscrete) else ()
        sizes = {given.name: given.shape[1:] for given in self.policy.get_inputs()}
        self.actions, self.memory = sizes.get("available"), {}
        if "last_action" in sizes:
            self.memory["last_action"] = np.array([-1])
        if "state" in sizes:
            self.memory["state"] = np.zeros((1, *sizes["state"]), np.float32)

    def action(self, observation: np.ndarray, mask: np.ndarray | None) -> object:
        """The action of highest value, or the likeliest one, among those in the mask."""
        inputs = {"observation": observation[None]}
        if self.actions is not None:
            permitted = np.ones(self.actions, bool) if mask is None else mask.astype(bool)
            inputs |= {"available": permitted[None], **self.memory}
            action, _, *state = self.policy.run(None, inputs)
            new = {"last_action": action, "state": state[0] if state else None}
            self.memory = {name: new[name] for name in self.memory}
            return action[0]
        if mask is None or mask.all():
            return self.policy.run(["action"], inputs)[0][0]
        (logits,) = self.policy.run(["logits"], inputs)[0]
        choices = np.split(np.where(mask, logits, -np.inf), np.cumsum(self.choices)[:-1])
        return np.array([choice.argmax() for choice in choices])


def main(folder: str) -> None:
    paths = sorted(Path(folder).glob("*.onnx"))
    if not paths:
        sys.exit(f"{folder} holds no policy; write some by fullrank export RUN --format onnx")
    metadata = InferenceSession(paths[0]).get_modelmeta().custom_metadata_map
    task = json.loads(metadata["parameters"])
    environment = parallel_env(metadata["environment"], agents=len(paths), **task)
    players = {
        agent: Player(path, environment.action_space(agent))
        for agent, path in zip(environment.possible_agents, paths, strict=True)
    }
    observation, infos = environment.reset(seed=0)
    episode_return = 0.0
    while environment.agents:
        actions = {
            agent: players[agent].action(observation[agent], infos[agent].get("action_mask"))
            for agent in environment.agents
        }
        observation, reward, _, _, infos = environment.step(actions)
        rewards = [*reward.values()]
        episode_return += rewards[0] if environment.shared_reward else sum(rewards)
    print(f"return {episode_return:.3f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python play_onnx.py DIRECTORY")
    main(sys.argv[1])
