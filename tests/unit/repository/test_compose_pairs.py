"""Compose: pairs of learner and sidecar, which Compose itself cannot scale."""

from pathlib import Path

import yaml

PAIRS = Path(__file__).resolve().parents[3] / "deploy" / "docker-compose.pairs.yml"


class _Loader(yaml.SafeLoader):
    """A loader that accepts Compose's ``!reset``."""


_Loader.add_constructor("!reset", lambda *_: None)


def test_every_learner_shares_the_network_of_a_sidecar_of_its_own() -> None:
    services = yaml.load(PAIRS.read_text(), _Loader)["services"]
    for number in range(4):
        learner = services.pop(f"learner-{number}")
        assert learner["network_mode"] == f"service:straggler-{number}"
        assert list(learner["depends_on"]) == [f"straggler-{number}"]
        assert learner["extends"] == {"file": "docker-compose.yml", "service": "learner"}
        sidecar = services.pop(f"straggler-{number}")
        assert sidecar["extends"] == {"file": "docker-compose.yml", "service": "straggler"}
    assert services == {
        "learner": {"deploy": {"replicas": 0}},
        "controller": {"environment": {"FULLRANK__LEARNERS": "4"}},
    }
