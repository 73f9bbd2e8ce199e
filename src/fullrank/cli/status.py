"""``fullrank status``: the current state of a run."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from rich.table import Table

from fullrank.cli.locate import RunOption, ended, locate
from fullrank.cli.options import CertificatesOption, JsonOption
from fullrank.cli.say import say
from fullrank.cli.terminal import Terminal
from fullrank.common.errors import ServiceLost
from fullrank.common.text import decimal
from fullrank.common.types import JSON
from fullrank.net.status import RunStatus
from fullrank.runs.progress import SMOOTHED
from fullrank.runs.record import IterationRecord
from fullrank.runs.scalars import RETURN, means
from fullrank.runs.time_budget import bottleneck, spent

VERDICTS = 5
"""Verdicts that are shown, the newest ones; ``--json`` has all."""


def status(
    run: RunOption = None, certificates: CertificatesOption = None, as_json: JsonOption = False
) -> None:
    """Print a run's progress, its learners and its time budget."""
    now, records = _look(run, certificates)
    if as_json:
        say(json.dumps(facts(now, records)))
        return
    console = Terminal()
    for line in headline(now, records):
        console.print(line, highlight=False, soft_wrap=True)
    for table in (learners(now), *players(now)):
        console.print(table)


def _look(
    run: str | None, certificates: Path | None
) -> tuple[RunStatus, Sequence[IterationRecord]]:
    """The status of a run and its last iterations, from its directory once it has ended."""
    try:
        with locate(run, certificates)() as monitor:
            now = monitor.status()
            first = max(0, now.committed - SMOOTHED)
            return now, list(monitor.watch(first, until_now=True))
    except ServiceLost:
        if (found := ended(run)) is None:
            raise
        now, records = found
        return now, records[-SMOOTHED:]


def facts(now: RunStatus, records: Sequence[IterationRecord]) -> JSON:
    """The state as JSON; unknown values are null."""
    phases, numbers = spent(records), means(records)
    longest = bottleneck(phases)
    return {
        **asdict(now),
        "return_mean": numbers.get(RETURN),
        "round_median_s": median(record.round_s for record in records) if records else None,
        "agent_updates_per_s": numbers.get("agent_updates_per_s"),
        "phases_s": {phase: seconds / len(records) for phase, seconds in phases.items()},
        "bytes": {kind: size / len(records) for kind, size in traffic_of(records).items()},
        "bottleneck": None if longest is None else asdict(longest),
    }


def headline(now: RunStatus, records: Sequence[IterationRecord]) -> list[str]:
    """Summary of the run in a few lines."""
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
        last, numbers = records[-1], means(records)
        value = decimal(numbers[RETURN]) if RETURN in numbers else "-"
        lines.append(
            f"last {len(records)} iterations: return {value}, "
            f"round {1e3 * median(record.round_s for record in records):.0f} ms, code {last.code}, "
            f"tolerance {last.tolerance}"
        )
        if "agent_updates_per_s" in numbers:
            lines.append(_overlap(numbers))
        lines += _per_iteration(records)
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


def _per_iteration(records: Sequence[IterationRecord]) -> list[str]:
    """Mean time of each phase, the longest of them, and mean traffic with the learners."""
    lines, phases = [], spent(records)
    if (longest := bottleneck(phases)) is not None:
        times = (f"{phase} {1e3 * s / len(records):.1f}" for phase, s in phases.items())
        lines += [f"ms an iteration: {', '.join(times)}", f"bottleneck: {longest}"]
    traffic = traffic_of(records)
    sizes = (f"{kind} {size / len(records) / 1e6:.3f}" for kind, size in traffic.items())
    return [*lines, f"MB an iteration: {', '.join(sizes)}"] if traffic else lines


def traffic_of(records: Sequence[IterationRecord]) -> Counter[str]:
    """Bytes between controller and learners over several iterations, by kind."""
    total: Counter[str] = Counter()
    for record in records:
        total.update(record.bytes_sent)
        total.update(record.bytes_received)
    return total


def learners(now: RunStatus) -> Table:
    """Table of the attached learners."""
    columns = ("learner", "host", "row", "state", "data", "vectors", "heard")
    table = Table(*columns, box=None, pad_edge=False)
    for learner in now.learners:
        rows = ",".join(map(str, learner.rows)) or "-"
        heard = f"{learner.silent_s:.1f} s ago"
        data = "mapped" if learner.maps_table else "sent"
        if learner.batch_bytes:
            data += f" {learner.batch_bytes / 1e6:.3f} MB"
        vectors = "shared" if learner.shares_memory else "sent"
        state = learner.activity(now)
        table.add_row(str(learner.learner), learner.host, rows, state, data, vectors, heard)
    return table


def players(now: RunStatus) -> list[Table]:
    """Tables of the collectors and of the containers among them, where there are any."""
    tables = [collectors(now)] if now.collectors else []
    return [*tables, containers(now)] if any(each.container for each in now.collectors) else tables


def collectors(now: RunStatus) -> Table:
    """Table of the collectors; of those that play freely, what became of their episodes."""
    free = any(collector.free for collector in now.collectors)
    facts = ("settled", "stale", "invalid") if free else ("each", "twice", "idle")
    columns = ("collector", "host", "state", "blocks", *facts, "lag", "heard")
    table = Table(*columns, box=None, pad_edge=False)
    for each in now.collectors:
        episodes = (str(each.settled), str(each.stale), str(each.invalid))
        blocks = (f"{1e3 * each.block_s:.1f} ms", str(each.reassigned), f"{each.idle:.0%}")
        table.add_row(
            str(each.collector),
            each.host,
            each.activity,
            str(each.blocks),
            *(episodes if free else blocks),
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
