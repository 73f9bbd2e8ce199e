"""Verbs that this package adds to the command line."""

from fullrank.cli.verb import Verb

CHAOS = Verb("Develop", "fullrank_faultlab.cli:chaos", "Inject faults and check the invariants.")
