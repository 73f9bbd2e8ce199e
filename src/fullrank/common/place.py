"""The place of a process in its run, which every line of its log names.

A process is one service; beside failpoints this is the only global state of the library.
"""

PLACE: dict[str, object] = {}
"""Run, term, index of a learner or collector, and iteration, as far as they are known."""
