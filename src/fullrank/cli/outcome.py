"""The outcome of a finished run: its team's return beside random play and the evaluation before."""

from collections.abc import Iterator
from pathlib import Path

from fullrank.cli.policies import COPIES, Version, facts_of, play_references, summary, trained
from fullrank.cli.progress import counting
from fullrank.config.tree import RunConfig
from fullrank.environments.base import is_adapted
from fullrank.environments.particle.scene import Drawable
from fullrank.runs.evaluations import append, read_evaluations
from fullrank.runs.record import METRICS, read_records
from fullrank.training.evaluation import Greedy, evaluate_and_close
from fullrank.training.references import GOOD, RANDOM, share_closed
from fullrank.wiring import environment_of

EPISODES, FEW = 100, 10
"""Episodes played by each policy; few where copies are separate objects, which may be slow."""
SEED = 1000
"""Seed of the initial states, that of ``fullrank eval``."""


def outcome(path: Path, config: RunConfig) -> Iterator[str]:
    """Evaluate the final policies, record the result, and yield the lines that report it.

    Where no episode ended in training, none is played: it might have no end.
    """
    if all(record.return_mean is None for record in read_records(path / METRICS)):
        yield "no episode ended, so there is no return to report"
        return
    policies = trained(path, config)
    episodes = episodes_of(config)
    evaluations = read_evaluations(path)
    earlier = [
        evaluation for evaluation in evaluations if evaluation.iteration < policies.iteration
    ]
    environment = environment_of(config, copies=min(episodes, COPIES))
    drawable = isinstance(environment, Drawable)
    with counting("playing", episodes, "episodes") as told:
        act = Greedy(policies.algorithm.actor)
        greedy = evaluate_and_close(environment, act, episodes, SEED, told=told)
    played = {"trained": greedy, **play_references(config, episodes=episodes, seed=SEED)}
    random = summary(played[RANDOM])
    if policies.version not in (
        Version(evaluation.term, evaluation.iteration) for evaluation in evaluations
    ):
        append(path, facts_of(config, policies, {"trained": greedy}, seed=SEED))
    for name, value in summary(greedy).items():
        words = f"without exploration, {episodes} episodes; random play {random[name]}"
        yield f"{name}: {value} {words}"
    if (closed := share_closed(played, "trained")) is not None:
        good = summary(played[GOOD])["return"]
        yield f"gap closed from random play to a good policy ({good}): {closed.mean:.0%}"
    if earlier:
        yield f"the evaluation before, at iteration {earlier[-1].iteration}: {earlier[-1].returns}"
    if drawable:
        yield f"watch an episode: fullrank render {path}"


def episodes_of(config: RunConfig) -> int:
    """Number of episodes that each policy plays."""
    return FEW if is_adapted(config.environment.name) else EPISODES
