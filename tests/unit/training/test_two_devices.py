"""A controller on another device than the one that computes; both are the CPU here."""

import pytest

from fullrank.algorithms.devices import CopiedGradients
from fullrank.common.errors import ConfigError
from fullrank.config import RunConfig, load
from fullrank.local import LocalRun
from fullrank.wiring.training import Training, training_of

SETTINGS = (
    *("iterations=3", "environment.copies=2", "environment.agents=2", "compute.device=auto"),
    *("algorithm.batch_size=16", "algorithm.hidden=8", "collect.steps=3", "collect.warmup=50"),
)
TEAMS = {
    "maddpg": (),
    "maddpg of two parts": ("algorithm.micro_batches=2",),
    "qmix": ("algorithm.name=qmix", "algorithm.batch_size=4", "environment.name=two_step_game"),
}


def config(*overrides: str) -> RunConfig:
    return load(None, environ={}, overrides=[*SETTINGS, *overrides]).check().config


def trained(settings: RunConfig) -> tuple[list[str], str, Training]:
    """Digests of a run's updates and of its final parameters."""
    run = LocalRun(settings, coded=False)
    updates = [record.update_digest for record in run.train()]
    run.training.collector.close()
    return updates, run.training.trainer.digest(), run.training


@pytest.mark.parametrize("team", TEAMS)
def test_units_computed_on_another_device_see_the_controllers_parameters(
    team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(*TEAMS[team])
    updates, parameters, alone = trained(settings)
    named = "fullrank.wiring.training.device_of"
    monkeypatch.setattr(named, lambda name, **_: name)  # auto is not cpu
    apart, state, training = trained(settings)
    assert isinstance(training.algorithm.gradients, CopiedGradients)
    assert not isinstance(alone.algorithm.gradients, CopiedGradients)
    assert (apart, state) == (updates, parameters)
    computing, own = (each.algorithm.gradients.fingerprint() for each in (training, alone))
    assert computing == own


@pytest.mark.parametrize("setting", ["controller.device", "compute.device"])
def test_a_device_that_is_not_there_ends_the_start_with_a_line_that_names_its_setting(
    setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError) as raised:
        training_of(config(f"{setting}=cuda:1"))
    assert str(raised.value) == (
        f"{setting} = 'cuda:1' needs a CUDA device, and this host has none: use 'cpu' or 'auto'"
    )
