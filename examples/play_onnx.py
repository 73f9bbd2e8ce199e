"""Play an episode with policies exported by ``fullrank export RUN --format onnx``.

python examples/play_onnx.py runs/mine/export/onnx
"""

import json
import sys
from pathlib import Path

from onnxruntime import InferenceSession

from fullrank.environments.parallel import parallel_env


def main(folder: str) -> None:
    policies = [InferenceSession(path) for path in sorted(Path(folder).glob("*.onnx"))]
    metadata = policies[0].get_modelmeta().custom_metadata_map
    task = json.loads(metadata["parameters"])
    environment = parallel_env(metadata["environment"], agents=len(policies), **task)
    players = dict(zip(environment.possible_agents, policies, strict=True))
    observation, _ = environment.reset(seed=0)
    episode_return = 0.0
    while environment.agents:
        inputs = {agent: {"observation": observation[agent][None]} for agent in environment.agents}
        actions = {agent: players[agent].run(["action"], inputs[agent])[0][0] for agent in inputs}
        observation, reward, *_ = environment.step(actions)
        episode_return += sum(reward.values())
    print(f"return {episode_return:.3f}")


if __name__ == "__main__":
    main(sys.argv[1])
