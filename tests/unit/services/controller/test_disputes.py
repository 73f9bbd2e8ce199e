"""A dispute that cannot be settled leaves out its parties, in one line."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fullrank.audit.ledger import Dispute
from fullrank.audit.proof import Finding, Proof
from fullrank.replay.samplers import Sample
from fullrank.runs.ending import held_since, rows_lost
from fullrank_controller.rounds import disputes
from fullrank_controller.rounds.disputes import Condemned, Disputes

LOST = rows_lost(iteration=4, expected=80, tail=0, head=0)


def test_a_run_holds_rows_since_the_last_loss_that_its_caveats_name() -> None:
    later = rows_lost(iteration=12, expected=90, tail=3, head=7)
    assert held_since([]) == 0
    assert held_since(["another caveat", LOST]) == 4
    assert held_since([LOST.replace("4:", "four:"), LOST]) == 4
    assert held_since([f"{LOST}; log/1 is missing", later]) == 12


@pytest.mark.parametrize(("iteration", "fetched"), [(3, 0), (4, 1)])
async def test_a_dispute_over_rows_that_replay_has_lost_is_said_in_one_line(
    iteration: int, fetched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The positions of the rows begin anew: a sample of them would have other rows."""
    sample = Sample(table="transitions", seed=0, iteration=iteration, tail=0, head=8, size=1)

    def prove(*_: object, **__: object) -> Proof:
        yield sample
        return Finding(wrong=None, culprits={})

    asked, left_out = list[object](), list[str]()

    async def get_sample(message: object, *, row_size: int) -> SimpleNamespace:
        asked.append(message)
        return SimpleNamespace(rows=np.zeros(1))

    async def condemn(first: int, reason: str) -> None:
        left_out.append(reason)

    async def bears_the_loss() -> bool:
        return True

    open_ = [Dispute(iteration=5, units=(0,), reports={0: {0: b"a"}, 1: {0: b"b"}})]
    ledger = SimpleNamespace(dispute=lambda: open_.pop() if open_ else None, settle=lambda _: None)
    run = SimpleNamespace(
        ledger=ledger,
        roster=SimpleNamespace(quarantine=lambda *_, **__: None, named=lambda *_, **__: "both"),
        membership=SimpleNamespace(bears_the_loss=bears_the_loss),
        progress=SimpleNamespace(committed=6),
    )
    term = SimpleNamespace(
        config=SimpleNamespace(seed=0),
        run=run,
        training=SimpleNamespace(problem=SimpleNamespace(row_size=1)),
        store=SimpleNamespace(condemn=condemn),
        directory=SimpleNamespace(caveats=(LOST,), path=Path()),
    )
    own = Disputes(cast(Any, term), cast(Any, SimpleNamespace(get_sample=get_sample)))
    past = SimpleNamespace(checkpoint=None, entries=(), since=0)
    monkeypatch.setattr(own, "_past", lambda _: past)
    monkeypatch.setattr(own, "_shadow", lambda: SimpleNamespace(problem=None))
    monkeypatch.setattr(disputes, "reporter_of", lambda *_, **__: None)
    monkeypatch.setattr(disputes, "prove", prove)
    if fetched:
        await own.settle()
    else:
        with pytest.raises(Condemned):
            await own.settle()
        (said,) = left_out
        assert "it cannot be decided who is right: replay has lost rows of iteration 3" in said
        assert "\n" not in said
    assert len(asked) == fetched
