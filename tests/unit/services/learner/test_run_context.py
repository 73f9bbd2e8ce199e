"""Contexts built before the fork: equal to those that a learner builds for its run."""

import pytest

from fullrank.config import load, to_toml
from fullrank.rpc.codec import encode_agent
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring import training_of
from fullrank_learner.run_context import RunContext, prepare

SMALL = ("algorithm.batch_size=8", "algorithm.hidden=4", "compute.device=cpu", "learners=4")


def welcome_of(*settings: str) -> pb.Welcome:
    """The Welcome of a run with these settings, as its controller writes it."""
    config = load(overrides=[*SMALL, *settings]).check().config
    training = training_of(config)
    return pb.Welcome(
        run="demo",
        term=1,
        configuration=to_toml(config),
        agents=[encode_agent(agent) for agent in training.collector.agents],
        state_size=training.state_size,
        masked=training.masked,
    )


def test_a_prepared_context_equals_the_one_built_for_the_run() -> None:
    prepared, built = prepare(load(overrides=SMALL)), RunContext(welcome_of())
    assert prepared is not None
    assert prepared.fits(welcome_of())
    assert prepared.probe == built.probe
    assert prepared.algorithm.gradients.fingerprint() == built.algorithm.gradients.fingerprint()


@pytest.mark.parametrize("other", ["seed=1", "environment.agents=4"])
def test_a_prepared_context_does_not_fit_another_configuration(other: str) -> None:
    prepared = prepare(load(overrides=SMALL))
    assert prepared is not None
    assert not prepared.fits(welcome_of(other))


def test_a_prepared_context_serves_no_run_until_it_is_welcomed() -> None:
    prepared = prepare(load(overrides=SMALL))
    assert prepared is not None
    assert not prepared.serves(welcome_of())
    assert RunContext(welcome_of()).serves(welcome_of())


@pytest.mark.parametrize(
    "setting",
    ["compute.threads=2", "environment.name=pettingzoo", "algorithm.hidden=0"],
)
def test_nothing_is_prepared_that_a_fork_would_break_or_the_controller_refuses(
    setting: str,
) -> None:
    assert prepare(load(overrides=[*SMALL, setting])) is None
