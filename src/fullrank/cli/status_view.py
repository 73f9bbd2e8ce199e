"""Status of a run for the terminal: lines, tables, and the picture that is drawn live."""

from collections.abc import Mapping, Sequence
from statistics import mean

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fullrank.common.text import decimal, plain
from fullrank.common.types import LearnerId
from fullrank.net.status import RunStatus, Status
from fullrank.runs.progress import SMOOTHED
from fullrank.runs.record import IterationRecord
from fullrank.runs.scalars import RETURN, STEPS_PER_S
from fullrank.runs.time_budget import bottleneck, spans

VERDICTS = 5
"""Verdicts that are shown, the newest ones; ``--json`` has all."""
LANE, CURVE = 50, 60
"""Widths of a learner's lane and of a curve, characters."""
WAITING, COMPUTING, DELAYED, SENDING, LATE, DECODABLE = "─", "█", "░", "▸", "·", "│"
LEGEND = (
    f"{WAITING} parameters and minibatch  {COMPUTING} computing  {DELAYED} delayed  {SENDING} "
    f"sending  {LATE} not waited for  {DECODABLE} rank reached M"
)
_MARKS = {
    "assign": WAITING,
    "compute": COMPUTING,
    "delay": DELAYED,
    "transfer": SENDING,
    "late": LATE,
}
_BARS = "▁▂▃▄▅▆▇█"


def lanes(record: IterationRecord, *, width: int) -> dict[LearnerId, str]:
    """Timeline of each learner with an assigned row, to scale in ``width`` characters."""
    scale = width / max(record.round_s, 1e-9)
    return {learner: _lane(record, learner, width, scale) for learner in sorted(record.assigned_s)}


def _lane(record: IterationRecord, learner: LearnerId, width: int, scale: float) -> str:
    cells = [" "] * width
    for phase, start_s, end_s in spans(record, learner):
        first, last = (min(width, int(scale * moment_s)) for moment_s in (start_s, end_s))
        cells[first:last] = [_MARKS[phase]] * (last - first)
    if record.decodable_s is not None:
        cells[min(width - 1, int(scale * record.decodable_s))] = DECODABLE
    return "".join(cells)


def sparkline(values: Sequence[float], *, width: int) -> str:
    """A curve of at most ``width`` characters, each the mean of equally many neighbours."""
    if not values:
        return ""
    parts = np.array_split(np.asarray(values, float), min(width, len(values)))
    means = np.array([part.mean() for part in parts])
    low, high = means.min(), means.max()
    steps = (means - low) / (high - low or 1.0) * (len(_BARS) - 1)
    return "".join(_BARS[int(step)] for step in steps.round())


def headline(status: Status) -> list[str]:
    """Summary of the run in a few lines."""
    now, records = status.now, status.recent
    lines = [
        f"run {now.run}, term {now.term}: {now.state}, {now.committed} of {now.iterations} "
        f"iterations{': ' * bool(now.message)}{now.message}"
        f"{f' (exit code {now.exit_code})' * bool(now.exit_code)}"
    ]
    if now.round_s:
        awaited = ", ".join(map(str, now.awaited)) or "none"
        lines.append(
            f"this round: rows of rank {now.rank} for {now.units} units after "
            f"{now.round_s:.2f} s, awaited: {awaited}"
        )
    if records:
        last, numbers = records[-1], status.numbers()
        value = decimal(numbers[RETURN]) if RETURN in numbers else "-"
        lines.append(
            f"last {len(records)} iterations: return {value}, "
            f"round {1e3 * (status.round_s() or 0.0):.0f} ms, code {last.code}, "
            f"tolerance {last.tolerance}"
        )
        if "agent_updates_per_s" in numbers:
            lines.append(_overlap(numbers))
        if (steps := status.env_steps()) is not None:
            rate = f", {numbers[STEPS_PER_S]:,.0f} a second" if STEPS_PER_S in numbers else ""
            lines.append(f"{steps:,.0f} environment steps{rate}")
        lines += _per_iteration(status)
    if now.playing:
        lines.append(now.playing)
    if now.blocks is not None:
        lines.append(str(now.blocks))
    return [*lines, *now.caveats, *now.verdicts[-VERDICTS:], *_failures(now)]


def _failures(now: RunStatus) -> list[str]:
    """The last failure of each collector, unless a caveat names it."""
    said = (
        f"collector {each.collector} on {each.host}: {each.failed}"
        for each in now.collectors
        if each.failed
    )
    return [line for line in said if line not in now.caveats]


def _overlap(numbers: Mapping[str, float]) -> str:
    """Mean times of playing, update and iteration, and agent-updates per second."""
    times = {name: numbers.get(f"time/{name}_s") for name in ("play", "update", "iteration")}
    shown = ", ".join(f"{name} {1e3 * s:.1f} ms" for name, s in times.items() if s is not None)
    return f"{shown}, {numbers['agent_updates_per_s']:,.0f} agent-updates/s"


def _per_iteration(status: Status) -> list[str]:
    """Mean time of each phase, the longest of them, and mean traffic with the learners."""
    lines, phases_s = [], status.phases_s()
    if (longest := bottleneck(phases_s)) is not None:
        times = (f"{phase} {1e3 * s:.1f}" for phase, s in phases_s.items())
        lines += [f"ms an iteration: {', '.join(times)}", f"bottleneck: {longest}"]
    sizes = [f"{kind} {size / 1e6:.3f}" for kind, size in status.traffic_bytes().items()]
    return [*lines, f"MB an iteration: {', '.join(sizes)}"] if sizes else lines


def learners(status: Status, *, drawn: bool = False) -> Table:
    """Table of the attached learners, with their ways of data or with lanes of the last round."""
    now, last = status.now, status.records[-1] if status.records else None
    further = ("late", f"round {last.iteration}" if last else "round")
    columns = further if drawn else ("data", "vectors", "heard")
    table = Table("learner", "host", "row", "state", *columns, box=None, pad_edge=False)
    lane = lanes(last, width=LANE) if last and drawn else {}
    for learner in now.learners:
        data = "mapped" if learner.maps_table else "sent"
        if learner.batch_bytes:
            data += f" {learner.batch_bytes / 1e6:.3f} MB"
        vectors = "shared" if learner.shares_memory else "sent"
        facts = (data, vectors, f"{learner.silent_s:.1f} s ago")
        late = f"{status.late(learner.learner):.0%}" if last else "-"
        table.add_row(
            str(learner.learner),
            learner.host,
            ",".join(map(str, learner.rows)) or "-",
            learner.activity(now),
            *((late, Text(lane.get(learner.learner, ""))) if drawn else facts),
        )
    return table


def players(now: RunStatus) -> list[Table]:
    """Tables of the collectors and of the containers among them, where there are any."""
    tables = [collectors(now)] if now.collectors else []
    return [*tables, containers(now)] if any(each.container for each in now.collectors) else tables


def collectors(now: RunStatus) -> Table:
    """Table of the collectors."""
    facts = ("blocks", "each", "twice", "stale", "idle")
    columns = ("no.", "host", "state", *facts, "lag", "heard")
    table = Table(*columns, box=None, pad_edge=False)
    for each in now.collectors:
        table.add_row(
            str(each.collector),
            each.host,
            each.activity,
            str(each.blocks),
            f"{1e3 * each.block_s:.1f} ms",
            str(each.reassigned),
            str(each.stale),
            f"{each.idle:.0%}",
            str(each.lag),
            f"{each.silent_s:.1f} s ago",
        )
    return table


def containers(now: RunStatus) -> Table:
    """Table of the containers: episodes played and handed over, and heads."""
    columns = ("container", "played", "handed over", "updates", "published", "divergence")
    table = Table(*columns, box=None, pad_edge=False)
    for each in now.collectors:
        if (facts := each.container) is not None:
            counts = (facts.played, facts.handed_over, facts.updates, facts.published)
            table.add_row(str(each.collector), *map(str, counts), f"{facts.divergence:.3f}")
    return table


def picture(status: Status) -> RenderableType:
    """Headline, return curve, time budget, and learners with timelines of the last round."""
    lines = headline(status)
    returns = [each.return_mean for each in status.records if each.return_mean is not None]
    if returns:
        lines.append(
            f"return {sparkline(returns, width=CURVE)} {decimal(mean(returns[-SMOOTHED:]))}"
        )
    phases_s = status.phases_s()
    if whole_s := sum(phases_s.values()):
        lines.append("  ".join(f"{phase} {s / whole_s:.0%}" for phase, s in phases_s.items()))
    return Group(
        *(Text(plain(line)) for line in lines),
        learners(status, drawn=True),
        *players(status.now),
        Text(LEGEND, style="dim"),
    )
