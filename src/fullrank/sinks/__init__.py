"""``metrics.jsonl``; sinks of metrics, as TensorBoard and W&B, which never stop or slow a run.

A further sink is a dataclass under ``@register("name")`` with the one method of ``SinkKind``, and
that of ``EvaluationSinkKind`` if it takes evaluations too: a file here, or a class that another
package names in the entry-point group ``fullrank.sinks``.
"""

from fullrank.sinks.base import (
    Aside,
    EvaluationSinkKind,
    Fanout,
    MetricsSink,
    Sink,
    SinkKind,
    open_evaluation_sinks,
    open_sinks,
    register,
    sinks,
)
from fullrank.sinks.jsonl import JsonLines

__all__ = [
    "Aside",
    "EvaluationSinkKind",
    "Fanout",
    "JsonLines",
    "MetricsSink",
    "Sink",
    "SinkKind",
    "open_evaluation_sinks",
    "open_sinks",
    "register",
    "sinks",
]
