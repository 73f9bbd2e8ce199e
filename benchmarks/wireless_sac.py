"""Claim: in wireless, the tabular scalable actor-critic beats random play while states are few.

For each of some draws of q, learners train at z = 2 and z = 10 and then play as they learned,
beside random play on the same initial states. The claim holds if at z = 2 the difference of the
mean returns, paired by draw, has its 90 % bootstrap interval above 0. At z = 10 each user has 1,024
states, most of which it never saw often enough: that row is shown, not judged. Nobody earns
anything by staying idle. The last columns tell how many tuples of states and actions a learner's
users met, and how many there are for the middle user alone.

    OMP_NUM_THREADS=1 python benchmarks/wireless_sac.py --episodes 2000
"""

import argparse
import sys
import time
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fullrank.baselines.scalable_actor_critic import ScalableActorCritic
from fullrank.environments.lattice.wireless import Uplink, Wireless
from fullrank.rollouts import Act, evaluate_and_close, random_actions
from fullrank.statistics import bootstrap
from fullrank.types import FloatArray, Interval

DEADLINES = (2, 10)
JUDGED = 2
EVALUATION_SEED, OPPONENT_SEED = 1000, 7
EVALUATED = 50
"""Episodes that each learner plays."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--draws", type=int, default=5, help="of q")
    parser.add_argument("--copies", type=int, default=4, help="learners of a draw")
    parser.add_argument("--episodes", type=int, default=2000)
    arguments = parser.parse_args()
    print(
        f"9 users, {arguments.draws} draws of q, {arguments.copies} learners each, "
        f"{arguments.episodes} episodes; mean return of an episode and 90 % intervals over draws:\n"
    )
    print("| z | idle | random | trained | trained - random | ms an episode | tuples met | of |")
    print("|---|---|---|---|---|---|---|---|")
    lows = {}
    for deadline in DEADLINES:
        rows = [
            measure(deadline, draw, copies=arguments.copies, episodes=arguments.episodes)
            for draw in range(arguments.draws)
        ]
        idle, random, trained, met, time_s = map(np.array, zip(*rows, strict=True))
        gain = bootstrap(trained - random, share=0.90)
        lows[deadline] = gain.low
        print(
            f"| {deadline} | {shown(idle)} | {shown(random)} | {shown(trained)} | {gain} | "
            f"{1000 * time_s.mean() / arguments.episodes:.1f} | {met.mean():,.0f} | "
            f"{(5.0 * 2**deadline) ** 9:.0e} |",
            flush=True,
        )
    holds = lows[JUDGED] > 0
    print(f"\n{'beats' if holds else 'falls short of'} random play at z = {JUDGED}")
    return not holds


def measure(deadline: int, draw: int, *, copies: int, episodes: int) -> tuple[float, ...]:
    """Returns of idle, random and trained play; tuples met by a learner; seconds of training."""
    learner = ScalableActorCritic(world(deadline, draw, copies), seed=draw, episodes=episodes)
    begun = time.perf_counter()
    exhaust(learner.train())
    time_s = time.perf_counter() - begun
    agents = world(deadline, draw, copies).agents
    players = (idle, random_actions(agents, seed=OPPONENT_SEED), learner.policy(seed=OPPONENT_SEED))
    returns = [played(world(deadline, draw, copies), act) for act in players]
    return (*returns, len(learner.table) / copies, time_s)


def world(deadline: int, draw: int, copies: int) -> Uplink:
    """All users act at once, as in the world that the method was made for."""
    config = Wireless(deadline=deadline, rate_seed=draw, simultaneous=True)
    return config.make(agents=9, copies=copies)


def played(environment: Uplink, act: Act) -> float:
    """Mean return; episodes are dealt to the copies, and so to the learners, in turn."""
    episodes = EVALUATED * environment.copies
    return float(evaluate_and_close(environment, act, episodes, EVALUATION_SEED).returns.mean())


def idle(observation: FloatArray) -> FloatArray:
    return np.tile(np.eye(5, dtype=np.float32)[0], (len(observation), 9))


def exhaust(returns: Iterable[NDArray[np.float64]]) -> None:
    for _ in returns:
        pass


def shown(values: NDArray[np.float64]) -> Interval:
    return bootstrap(values, share=0.90)


if __name__ == "__main__":
    sys.exit(main())
