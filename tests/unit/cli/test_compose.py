"""``fullrank compose``: pairs of learner and sidecar, which Compose itself cannot scale."""

import yaml
from typer.testing import CliRunner

from fullrank.cli.compose import app


def _rendered(*words: str) -> str:
    result = CliRunner().invoke(app, ["render", *words])
    assert result.exit_code == 0, result.output
    return result.output


class _Loader(yaml.SafeLoader):
    """A loader that accepts Compose's ``!reset``."""


_Loader.add_constructor("!reset", lambda *_: None)


def test_every_learner_shares_the_network_of_a_sidecar_of_its_own() -> None:
    services = yaml.load(_rendered("--learners", "15"), _Loader)["services"]
    for number in range(15):
        learner = services.pop(f"learner-{number}")
        assert learner["network_mode"] == f"service:straggler-{number}"
        assert learner["extends"] == {"file": "docker-compose.yml", "service": "learner"}
        sidecar = services.pop(f"straggler-{number}")
        assert sidecar["extends"] == {"file": "docker-compose.yml", "service": "straggler"}
    assert services == {
        "learner": {"deploy": {"replicas": 0}},
        "controller": {"environment": {"FULLRANK__LEARNERS": "15"}},
    }


def test_the_file_to_extend_may_lie_elsewhere() -> None:
    text = _rendered("--learners", "1", "--base", "../deploy/docker-compose.yml")
    services = yaml.load(text, _Loader)["services"]
    assert services["learner-0"]["extends"]["file"] == "../deploy/docker-compose.yml"
