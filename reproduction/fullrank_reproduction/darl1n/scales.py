"""Parts and scales of the reproduction of [DARL1N]."""

from dataclasses import dataclass
from enum import StrEnum

from fullrank_reproduction.darl1n.training.budget import Darl1nBudget


class Darl1nPart(StrEnum):
    """A part of the reproduction."""

    CODES = "codes"
    """Lemma 1, Table V, Fig. 7, and the times of Table VI."""
    ISING = "ising"
    """Table I."""
    FOOD = "food"
    """Table II."""
    GRASSLAND = "grassland"
    """Table III."""
    BATTLE = "battle"
    """Table IV."""
    FIG2 = "fig2"
    """Time of an iteration against M."""
    FIG3 = "fig3"
    """DARL1N with all agents as neighbours."""
    FIG4 = "fig4"
    """Cross-play."""
    FIG5 = "fig5"
    """Wireless."""
    FIG6 = "fig6"
    """The neighbour distance."""
    CONTACT = "contact"
    """The contact distance, and halving over fixed ones, ours after Sec. VII."""
    TABLE6 = "table6"
    """Rewards with codes, Table VI."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Darl1nScale:
    """Scale of the reproduction."""

    name: str
    budget: Darl1nBudget
    trials: int
    """Trials of each probability in Table V."""
    sets: int
    """Sets J behind each average V."""
    exact_sets: int
    """The same for the Vandermonde matrix, where each set takes a third of a second."""
    samples: int
    """Sets J of each size in the noise study."""
    draws: int
    """Drawn matrices of a random code whose rounds are simulated."""
    rounds: int
    """Simulated rounds with each matrix."""


SMOKE = Darl1nScale(
    name="smoke",
    budget=Darl1nBudget(
        sizes=1,
        iterations=200,
        every=10,
        batch=256,
        seeds=1,
        timed=3,
        draws=1,
        episodes=300,
    ),
    trials=2_000,
    sets=100,
    exact_sets=10,
    samples=2_000,
    draws=5,
    rounds=20,
)
"""Takes minutes; as many sets J as in the paper, and its smallest teams."""

STANDARD = Darl1nScale(
    name="standard",
    budget=Darl1nBudget(
        sizes=1,
        more={"ising": 3, "food_collection": 4, "grassland": 2, "adversarial_battle": 2},
        iterations=1_000,
        shorter={
            ("ising", 16): 300,
            ("ising", 25): 300,
            ("food_collection", 24): 200,
            ("grassland", 12): 300,
            ("adversarial_battle", 12): 300,
        },
        every=30,
        batch=1_024,
        seeds=3,
        timed=9,
        draws=5,
        episodes=2_000,
        grown={"ising": (200, 1, 1, 1), "food_collection": (1_000, 1_000)},
        coded=300,
        full_range=300,
    ),
    trials=2_000,
    sets=100,
    exact_sets=10,
    samples=2_000,
    draws=5,
    rounds=20,
)
"""The authors' batch and seeds; takes about an hour on two cores."""

PAPER = Darl1nScale(
    name="paper",
    budget=Darl1nBudget(
        sizes=4,
        iterations=3_000,
        every=30,
        batch=1_024,
        seeds=3,
        timed=10,
        draws=5,
        episodes=2_000,
        coded=600,
        full_range=3_000,
    ),
    trials=20_000,
    sets=1_000,
    exact_sets=100,
    samples=20_000,
    draws=10,
    rounds=60,
)
"""The paper's teams, iterations, seeds and rounds; takes days on two cores."""

SCALES = {scale.name: scale for scale in (SMOKE, STANDARD, PAPER)}
