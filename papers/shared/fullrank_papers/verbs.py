"""Command-line verbs of this package."""

from fullrank.cli.main import Verb

REPRODUCE = Verb(
    "Reproduce",
    "fullrank_papers.cli:reproduce",
    "Run a paper's experiments and judge its claims.",
)
