"""Command-line verbs of this package."""

from fullrank.cli.main import Verb

REPRODUCE = Verb(
    "Reproduce",
    "fullrank_reproduction.cli:app",
    "Run a paper's experiments and judge its claims.",
)
