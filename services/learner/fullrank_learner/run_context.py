"""A learner's context of a run: configuration, algorithm and probe."""

from dataclasses import dataclass, field, replace

import torch

from fullrank.algorithms.devices import placed, visible
from fullrank.algorithms.roles import Algorithm
from fullrank.common.errors import FullrankError
from fullrank.common.types import RunTerm
from fullrank.config.elsewhere import device_kind, from_elsewhere, require
from fullrank.config.layers import Resolved
from fullrank.config.plugins import spec_of
from fullrank.config.toml import to_toml
from fullrank.config.tree import RunConfig
from fullrank.environments.base import is_adapted
from fullrank.net.codec import decode_environment, encode_environment
from fullrank.net.messages import equal_setup
from fullrank.stragglers import DelayModel
from fullrank.stragglers.base import Lateness, lateness_of
from fullrank.training.worker import Probe, Worker, probe_of
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring.plugins import algorithm_of, delays_of, is_accelerated


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlace:
    """Place of a learner among those of its host."""

    replica: int = 0
    """Number of the learner among the replicas of its process."""
    device: str = "auto"
    """Its own ``compute.device``; ``auto``: that of the run."""
    own: RunConfig = field(default_factory=RunConfig)
    """Its own configuration, whose local settings count."""

    def device_of(self, run: str, *, accelerated: bool) -> str:
        """Return its device, given ``compute.device`` and ``Problem.accelerated`` of the run."""
        named = run if self.device == "auto" else self.device
        return placed(named, self.replica, devices=visible(), accelerated=accelerated)


class LearnerContext:
    """Context of a run, built once and kept while the learner reconnects to the same run.

    Args:
        welcome: The controller's answer to the learner's Hello.
        place: Place of the learner on its host.
    """

    def __init__(self, welcome: pb.Welcome, *, place: HostPlace | None = None) -> None:
        place = place or HostPlace()
        elsewhere = from_elsewhere(welcome.configuration, own=place.own)
        require(elsewhere.dropped, "stragglers.path", origin="the controller's configuration")
        config, kind = elsewhere.config, device_kind(elsewhere)
        environment = decode_environment(config, welcome)
        device = place.device_of(kind, accelerated=is_accelerated(config, environment))
        self.config = replace(config, compute=replace(config.compute, device=device))
        self.welcome = welcome
        self.run_term = RunTerm(welcome.run, welcome.term, welcome.instance)
        """Term served last; it rises when a new controller takes over the run."""
        self.algorithm: Algorithm = algorithm_of(self.config, environment)
        self.problem = self.algorithm.problem
        self.worker = Worker(self.problem, self.algorithm.gradients, seed=self.config.seed)
        self.delays: DelayModel = delays_of(self.config)
        self.probe: Probe = probe_of(self.algorithm, environment.agents, seed=self.config.seed)

    def serves(self, welcome: pb.Welcome) -> bool:
        """Return whether this is the context of the run that ``welcome`` names."""
        return self.run_term.run == welcome.run and self.fits(welcome)

    def fits(self, welcome: pb.Welcome) -> bool:
        """Return whether the context of the run that ``welcome`` names would be equal."""
        return equal_setup(self.welcome, welcome)

    def lateness(self, iteration: int, learner: int, *, time_s: float) -> Lateness:
        """Return the injected lateness of this learner, ``time_s`` seconds after the run began."""
        return lateness_of(
            self.delays,
            seed=self.config.seed,
            iteration=iteration,
            learner=learner,
            learners=self.config.learners,
            units=len(self.problem.units),
            time_s=time_s,
        )


def prepare(resolved: Resolved) -> LearnerContext | None:
    """Build the context of a configuration, before the process forks its replicas.

    They then share one probe, and the pages of all that they only read. None where a fork would
    lose threads (of torch, of a device, of another package's environment), and where the
    configuration is faulty, which the controller reports.
    """
    compute = resolved.config.compute
    if compute.threads != 1 or (torch.version.cuda is not None and compute.device != "cpu"):
        return None
    if is_adapted(resolved.config.environment.name):
        return None
    try:
        config = resolved.check().config
        return LearnerContext(
            pb.Welcome(
                configuration=to_toml(config),
                **encode_environment(spec_of(config)),
            ),
            place=HostPlace(own=config),
        )
    except FullrankError:
        return None
