"""Where metrics go besides ``metrics.jsonl``; none of it can stop or slow a run.

A sink is one file here, or a class that another package names in the entry-point group
``fullrank.sinks``: a dataclass under ``@register("name")`` with ``SinkKind``'s one method, and that
of ``EvaluationSinkKind`` if it takes evaluations, too.
"""

from fullrank.sinks.aside import Aside
from fullrank.sinks.base import (
    EvaluationSinkKind,
    SinkKind,
    open_evaluation_sinks,
    open_sinks,
    register,
    sinks,
)

__all__ = [
    "Aside",
    "EvaluationSinkKind",
    "SinkKind",
    "open_evaluation_sinks",
    "open_sinks",
    "register",
    "sinks",
]
