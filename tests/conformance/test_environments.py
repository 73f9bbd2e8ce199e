"""Laws that every registered environment keeps."""

from typing import Any

import pytest
from tests.registries import shipped

from fullrank.conformance import EnvironmentLaws
from fullrank.conformance.environments import Made
from fullrank.environments import environments

WRAPPED: dict[str, tuple[str, dict[str, Any]]] = {
    "pettingzoo": (
        "pettingzoo",
        {
            "factory": "fullrank.environments.parallel:parallel_env",
            "arguments": {"name": "cooperative_navigation", "agents": 4, "horizon": 7},
        },
    ),
    "lbforaging": ("gymnasium", {"id": "lbforaging:Foraging-5x5-2p-1f-coop-v3"}),
    "rware": ("gymnasium", {"id": "rware:rware-tiny-2ag-v2", "arguments": {"max_steps": 40}}),
}
"""Name and parameters of foreign environments."""
CASES = {
    name: (name, dict[str, Any]())
    for name in shipped(environments)
    if name not in ("pettingzoo", "gymnasium")
} | WRAPPED
UNSEEDED = {"matrix_game", "two_step_game"}
"""Environments in which nothing is random."""


class TestEnvironments(EnvironmentLaws):
    @pytest.fixture(params=sorted(CASES))
    def made(self, request: pytest.FixtureRequest) -> Made:
        name, params = CASES[request.param]
        if name == "gymnasium":
            pytest.importorskip(request.param, reason=f"needs the package {request.param}")
        return Made(name, 0, params, seeded=request.param not in UNSEEDED)
