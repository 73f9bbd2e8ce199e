"""Where metrics go besides ``metrics.jsonl``; none of it can stop or slow a run.

A sink is one file here, or a class that another package names in the entry-point group
``fullrank.sinks``: a dataclass under ``@register("name")`` with ``SinkKind``'s one method.
"""

from fullrank.sinks.aside import Aside
from fullrank.sinks.base import SinkKind, open_sinks, register, sinks

__all__ = ["Aside", "SinkKind", "open_sinks", "register", "sinks"]
