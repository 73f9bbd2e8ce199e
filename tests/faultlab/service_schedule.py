"""Kinds of faults of a run on real services, and their schedule, drawn from a seed."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tests.faultlab.fault_proxy import FaultProxy, NetworkFault
from tests.faultlab.service_runs import Mode, is_guarded, is_stored

from fullrank.common.seeding import stream

ITERATIONS, FAULTS = 60, 4
SHORTEST_S, LONGEST_S = 0.2, 2.5
"""Range of a fault's duration: beyond a learner's heartbeat timeout, but below the time after which
a waiting service gives up."""

SIGNALS: Mapping[str, signal.Signals] = MappingProxyType(
    {"killed": signal.SIGKILL, "stopped": signal.SIGTERM, "frozen": signal.SIGSTOP}
)
"""Faults of a process; an ended one is restarted, as a supervisor would."""
NETWORK_FAULTS: Mapping[str, NetworkFault] = MappingProxyType(
    {
        "connections cut": FaultProxy.cut,
        "connections silent": FaultProxy.hold,
        "connections silent towards it": lambda proxy: proxy.up.hold(),
        "connections silent from it": lambda proxy: proxy.down.hold(),
        "connections slow": lambda proxy: proxy.delay(0.05, jitter_s=0.02),
        "connections at a byte a second": lambda proxy: proxy.throttle(1.0),
    }
)
"""Faults of the connections to the controller or to replay."""
DUPLICATED = "a second one started"
"""Fault of the controller and of replay: another process on the same directory, to be refused."""
RESUMED = "resumed a second time"
"""Fault of the controller: ``fullrank run resume`` on its directory, to be refused."""
LOST = "machine lost"
"""Fault of the controller: it is killed, its directory is lost, and another one goes on."""
CORRUPTED = "vectors corrupted"
"""Fault of a learner: one byte of every vector that it sends is changed."""
OUTNUMBERED = "outnumbered by sybils and killed"
"""Fault of a learner: more streams than there are learners claim another numeric fingerprint, and
its row is vacant meanwhile."""
LYING = "replaced by one that lies"
"""Fault of a learner: it is killed, and another one reports and sends forged updates."""
MOMENTARY = (DUPLICATED, RESUMED, LOST)
"""Faults without a duration of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnFault:
    """A fault of the schedule of a seed."""

    iteration: int
    """Iterations to be committed before."""
    service: str
    kind: str
    duration_s: float
    """Its length; 0 if it has none."""


def schedule_of(
    seed: int, *, mode: Mode, iterations: int = ITERATIONS, faults: int = FAULTS
) -> list[DrawnFault]:
    """Draw the faults of a seed, in the order of their iterations."""
    draws = stream(seed, "disturbances")
    families: Mapping[str, list[Sequence[str]]] = {
        "controller": [
            [*SIGNALS],
            [*NETWORK_FAULTS],
            [DUPLICATED, RESUMED],
            *[[LOST]] * 3 * is_stored(seed),
        ],
        "replay": [[*SIGNALS], [*NETWORK_FAULTS], [DUPLICATED]],
        "learner": [[*SIGNALS], [CORRUPTED], [OUTNUMBERED], *[[LYING]] * is_guarded(seed)],
        "collector": [[*SIGNALS]],
    }
    services = ["controller", "replay", "learner", *["collector"] * 2 * (mode is not Mode.INLINE)]
    schedule = []
    for iteration in sorted(draws.integers(1, iterations - 1, faults).tolist()):
        service = services[int(draws.integers(len(services)))]
        family = families[service][int(draws.integers(len(families[service])))]
        kind = family[int(draws.integers(len(family)))]
        duration_s = float(draws.uniform(SHORTEST_S, LONGEST_S)) * (kind not in MOMENTARY)
        schedule.append(
            DrawnFault(iteration=iteration, service=service, kind=kind, duration_s=duration_s)
        )
    return schedule
