"""Fixture for every overlay in deploy/k8s."""

import pytest
from tests.kustomize import OVERLAYS


@pytest.fixture(params=sorted(path.name for path in OVERLAYS.iterdir()))
def overlay(request: pytest.FixtureRequest) -> str:
    return str(request.param)
