"""Play an episode with policies exported by ``fullrank export RUN --format onnx``.

python examples/play_onnx.py runs/mine/export/onnx
"""

import json
import sys
from pathlib import Path

import numpy as np
from onnxruntime import InferenceSession

from fullrank.environments.parallel import parallel_env


def action(policy: InferenceSession, observation: np.ndarray, mask: np.ndarray | None) -> object:
    """The policy's action; the likeliest available one where there is a mask."""
    inputs = {"observation": observation[None]}
    if mask is None:
        return policy.run(["action"], inputs)[0][0]
    (logits,) = policy.run(["logits"], inputs)[0]
    return int(np.where(mask, logits, -np.inf).argmax())


def main(folder: str) -> None:
    policies = [InferenceSession(path) for path in sorted(Path(folder).glob("*.onnx"))]
    metadata = policies[0].get_modelmeta().custom_metadata_map
    task = json.loads(metadata["parameters"])
    environment = parallel_env(metadata["environment"], agents=len(policies), **task)
    players = dict(zip(environment.possible_agents, policies, strict=True))
    observation, infos = environment.reset(seed=0)
    episode_return = 0.0
    while environment.agents:
        actions = {
            agent: action(players[agent], observation[agent], infos[agent].get("action_mask"))
            for agent in environment.agents
        }
        observation, reward, _, _, infos = environment.step(actions)
        episode_return += sum(reward.values())
    print(f"return {episode_return:.3f}")


if __name__ == "__main__":
    main(sys.argv[1])
