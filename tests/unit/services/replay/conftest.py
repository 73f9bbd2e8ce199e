"""Fixtures of the replay service."""

from collections.abc import AsyncIterator

import pytest

from .replay_service import Replay, serving


@pytest.fixture
async def replay() -> AsyncIterator[Replay]:
    async with serving() as service:
        yield service
