"""The dashboard's view of C: rows that hold a unit, and the learners that hold them now."""

from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest

from fullrank.config import RunConfig
from fullrank.config.tree import TlsSettings
from fullrank.net.status import CodeInUse, LearnerStatus, RunStatus, Setup
from fullrank.runs.record import IterationRecord
from fullrank_dashboard.following import Following
from fullrank_dashboard.server import PageState
from fullrank_dashboard.view import code_facts

CODE = CodeInUse(
    epoch=0,
    name="cyclic",
    parameters={},
    matrix=np.eye(4, 3),
    tolerance=0,
    certificate="exact",
    holders={0: 5, 1: 5, 2: 7, 3: 7},
    plan=None,
)
"""A code of two rows for each of two learners, the last of which is empty."""


def test_a_row_without_a_unit_is_not_shown() -> None:
    facts = code_facts(CODE)
    assert facts["matrix"] == np.eye(3).tolist()
    assert facts["holders"] == [5, 5, 7]
    assert code_facts(replace(CODE, holders={0: 5, 1: 5}))["holders"] == [5, 5, None]


class Controlled:
    """A monitor of a controller whose code and status a test sets."""

    def __init__(self, code: CodeInUse, run: str = "mine") -> None:
        self.run, self.in_use, self.asked = run, code, 0
        self.committed: list[IterationRecord] = []

    def __call__(self, address: str, **_: object) -> "Controlled":
        return self

    async def setup(self) -> Setup:
        return Setup(run=self.run, version="", config=RunConfig(), agents=())

    async def watch(
        self, first: int, *, seen_term: int = 0, **_: object
    ) -> AsyncIterator[IterationRecord]:
        for record in self.committed:
            if record.iteration >= first or record.term > seen_term > 0:
                yield record

    async def status(self) -> RunStatus:
        held: dict[int, list[int]] = {}
        for row, learner in self.in_use.holders.items():
            held.setdefault(learner, []).append(row)
        attached = [
            LearnerStatus(
                learner=learner,
                host="here",
                rows=tuple(rows),
                answered=False,
                silent_s=0.0,
                quarantined="",
                fingerprint="f",
                maps_table=False,
                batch_bytes=0,
                shares_memory=False,
            )
            for learner, rows in held.items()
        ]
        return RunStatus(run=self.run, epoch=self.in_use.epoch, learners=tuple(attached))

    async def code(self) -> CodeInUse:
        self.asked += 1
        return self.in_use

    async def close(self) -> None:
        pass


async def test_a_page_is_told_the_code_again_when_a_spare_takes_over_a_row_within_an_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controlled, page = Controlled(CODE), PageState()
    monkeypatch.setattr("fullrank_dashboard.following.AsyncMonitor", controlled)
    following = Following("10.0.0.9:5000", TlsSettings())

    async def told() -> list[int] | None:
        assert await following.look()
        news = page.news(following.view)
        assert news is not None
        return news["code"]["holders"] if "code" in news else None

    assert await told() == [5, 5, 7]
    assert await told() is None
    controlled.in_use = replace(CODE, holders={0: 5, 1: 5, 2: 9, 3: 9})
    assert await told() == [5, 5, 9]
    assert await told() is None
    assert controlled.asked == 2


async def test_extra_rows_of_a_round_are_no_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    controlled = Controlled(CODE)
    monkeypatch.setattr("fullrank_dashboard.following.AsyncMonitor", controlled)
    following = Following("10.0.0.9:5000", TlsSettings())
    await following.look()
    controlled.in_use = replace(CODE, holders={**CODE.holders, 4: 9})
    await following.look()
    assert controlled.asked == 1
