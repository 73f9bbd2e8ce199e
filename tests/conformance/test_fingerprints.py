"""Numeric fingerprints are equal in every process."""

import os
import subprocess
import sys

import pytest
import torch
from tests.registries import shipped

from fullrank.algorithms import algorithms, environment_spec
from fullrank.conformance.subjects import WORLD
from fullrank.environments import make_environment

FINGERPRINTS = f"""
import torch
from fullrank.algorithms import algorithms, environment_spec
from fullrank.environments import make_environment

torch.set_num_threads(1)
agents = make_environment({WORLD!r}, agents=4, copies=1).agents
environment = environment_spec(agents, environment={WORLD!r}, count=4, params={{}})
for name in {shipped(algorithms)}:
    algorithm = algorithms.build(name).make(environment, seed=0, device="cpu")
    print(name, algorithm.gradients.fingerprint())
"""


@pytest.mark.integration
def test_the_fingerprint_is_the_same_in_another_process() -> None:
    torch.set_num_threads(1)
    agents = make_environment(WORLD, agents=4, copies=1).agents
    environment = environment_spec(agents, environment=WORLD, count=4, params={})
    made = (
        (name, algorithms.build(name).make(environment, seed=0, device="cpu"))
        for name in shipped(algorithms)
    )
    here = [f"{name} {algorithm.gradients.fingerprint()}" for name, algorithm in made]
    command = [sys.executable, "-c", FINGERPRINTS]
    hashing = {**os.environ, "PYTHONHASHSEED": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=hashing)
    assert ran.stdout.splitlines() == here
