"""Neighbours are of one minor release."""

import pytest

from fullrank.common.errors import VersionMismatch
from fullrank.net import messages
from fullrank.net.messages import check_version


def test_patches_of_one_minor_release_work_together_and_others_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "__version__", "0.2.1")
    for fellow in ("0.2.0", "0.2.0.dev0", "0.2.17", "0.2.3.post1", "0.2.1+local"):
        check_version(fellow, peer="learner", own="controller")
    for other in ("0.1.9", "0.3.0", "0.3.0.dev0", "1.2.1", "0.2", "10.2.1", "", "0.2.x"):
        with pytest.raises(VersionMismatch, match=r"of the learner differs .*0\.2\.1"):
            check_version(other, peer="learner", own="controller")
