"""Another run that takes the place of the one shown is shown alone, from its start."""

import json
from pathlib import Path

import pytest
from tests.unit.runs.test_record import record, write

from fullrank.common.errors import ServiceLost
from fullrank.config import RunConfig, to_toml
from fullrank.config.tree import TlsSettings
from fullrank.runs.evaluations import append
from fullrank.runs.identity import IDENTITY
from fullrank.runs.record import METRICS
from fullrank_dashboard.following import Following
from fullrank_dashboard.server import PageState

from .test_code import CODE, Controlled


@pytest.mark.parametrize("seen", [True, False])
async def test_another_run_at_the_address_is_shown_alone(
    seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    controlled, page = Controlled(CODE), PageState()
    controlled.committed = [record(each, return_mean=1.0) for each in range(5)]
    monkeypatch.setattr("fullrank_dashboard.following.AsyncMonitor", controlled)
    following = Following("10.0.0.9:5000", TlsSettings())
    assert await following.look()
    assert page.news(following.view) is not None
    if not seen:
        await following._hang_up()
    controlled.run = "other"
    controlled.committed = [record(each, return_mean=2.0) for each in range(7)]
    if seen:
        with pytest.raises(ServiceLost, match="run other answers in place of mine"):
            await following.look()
    assert await following.look()
    view = following.view
    assert (view.last, view.find(0)) == (record(6, return_mean=2.0), record(0, return_mean=2.0))
    assert view.facts()["status"]["run"] == "other"
    assert [line["text"] for line in view.facts()["log"]] == [
        "code assigned, epoch 2: cyclic, 0 rows, tolerance 0"
    ]
    news = page.news(view)
    assert news is not None
    assert (news["curve"]["start"], news["curve"]["columns"]["return/mean"]) == (0, [2.0] * 7)


async def test_another_run_in_the_directory_is_shown_alone(tmp_path: Path) -> None:
    def train(run: str, value: float) -> None:
        (tmp_path / "config.toml").write_text(to_toml(RunConfig()))
        (tmp_path / IDENTITY).write_text(json.dumps({"run": run, "term": 1}))
        (tmp_path / METRICS).unlink(missing_ok=True)
        write(tmp_path / METRICS, *(record(each, return_mean=value) for each in range(3)))

    following = Following(str(tmp_path), TlsSettings())
    train("one", 1.0)
    interval = {"mean": 1.0, "low": 0.0, "high": 2.0}
    append(tmp_path, {"iteration": 2, "term": 1, "trained": {**interval, "sides": {}}})
    with pytest.raises(ServiceLost):
        await following.look()
    following.stage.episode = b"of one"
    assert len(following.view.evaluations()) == 1
    (tmp_path / "evaluations.jsonl").unlink()
    train("two", 2.0)  # a file of the same size
    with pytest.raises(ServiceLost):
        await following.look()
    view = following.view
    assert view.curve.columns(0)["return/mean"] == [2.0] * 3
    assert (view.evaluations(), following.stage.episode) == ([], b"")
