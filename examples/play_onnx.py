"""Play an episode with policies that ``fullrank export RUN --format onnx`` wrote.

python examples/play_onnx.py runs/mine/export/onnx
"""

import json
import sys
from pathlib import Path

from onnxruntime import InferenceSession

from fullrank.environments.parallel import parallel_env


def main(folder: str) -> None:
    policies = [InferenceSession(path) for path in sorted(Path(folder).glob("*.onnx"))]
    about = policies[0].get_modelmeta().custom_metadata_map
    task = json.loads(about["parameters"])
    environment = parallel_env(about["environment"], agents=len(policies), **task)
    players = dict(zip(environment.possible_agents, policies, strict=True))
    seen, _ = environment.reset(seed=0)
    earned = 0.0
    while environment.agents:
        inputs = {agent: {"observation": seen[agent][None]} for agent in environment.agents}
        actions = {agent: players[agent].run(["action"], inputs[agent])[0][0] for agent in inputs}
        seen, reward, *_ = environment.step(actions)
        earned += sum(reward.values())
    print(f"return {earned:.3f}")


if __name__ == "__main__":
    main(sys.argv[1])
