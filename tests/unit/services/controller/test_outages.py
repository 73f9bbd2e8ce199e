"""An outage of replay is the state of the run for as long as it lasts."""

from pathlib import Path

import pytest

from fullrank.common.errors import ServiceLost
from fullrank.host.run_directory import announce
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.progress import RunProgress
from fullrank_controller.server import ensure_in_place


def test_an_outage_hides_the_state_that_goes_on_below_it() -> None:
    progress = RunProgress()
    progress.run()
    assert progress.interrupt("waiting for replay")
    assert not progress.interrupt("waiting for replay: no answer")  # said before
    progress.stall("waiting for learners")  # rounds have states of their own
    progress.run("one learner is late")
    assert (progress.state, progress.message) == (
        pb.RUN_STATE_STALLED,
        "waiting for replay: no answer",
    )
    assert not progress.interrupt("")
    assert (progress.state, progress.message) == (pb.RUN_STATE_RUNNING, "one learner is late")


def test_a_service_that_listens_elsewhere_is_not_waited_for(tmp_path: Path) -> None:
    anywhere, dialled = "127.0.0.1:0", "127.0.0.1:4711"
    ensure_in_place(anywhere, tmp_path, dialled)  # it has withdrawn, and may come back
    announce(tmp_path, "replay", dialled)
    ensure_in_place(anywhere, tmp_path, dialled)
    announce(tmp_path, "replay", "127.0.0.1:4712")
    with pytest.raises(ServiceLost, match=r"listens on 127\.0\.0\.1:4712 now, and not on"):
        ensure_in_place(anywhere, tmp_path, dialled)
    ensure_in_place(dialled, tmp_path, dialled)  # a port that stays
