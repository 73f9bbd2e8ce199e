"""``fullrank.client``, the verbs built on it, and the example."""

import asyncio
import json
import re
import subprocess
import sys
from importlib import import_module
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from tests.addresses import free_address
from tests.fakes import Fault
from tests.integration.cluster import Cluster, resolved
from tests.waiting import WAIT_S, eventually

from fullrank.cli import main
from fullrank.client import AsyncMonitor, Monitor, RunState, Unit
from fullrank.codes import make_code
from fullrank.common.errors import NotFound, ServiceLost
from fullrank.config import to_toml
from fullrank.config.elsewhere import from_elsewhere
from fullrank.host.run_directory import resolve
from fullrank.runs.record import METRICS

pytestmark = pytest.mark.integration

status_module = import_module("fullrank.cli.run")
monitor_module = import_module("fullrank.net.monitor")

EXAMPLE = Path(__file__).parents[2] / "examples" / "watch_a_run.py"


async def monitor_of(cluster: Cluster) -> str:
    await cluster.address()
    await eventually(
        lambda: (cluster.run_dir / "services" / "monitor.json").exists(), what="it listens"
    )
    return resolve("127.0.0.1:0", cluster.run_dir, "monitor")


def fullrank(*words: str) -> int:
    """Exit code of the command."""
    try:
        main(words)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.smoke
async def test_both_clients_see_the_run_and_agree(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved("iterations=6")) as cluster:
        cluster.serve()
        address = await monitor_of(cluster)
        async with AsyncMonitor(address) as monitor:
            with pytest.raises(NotFound, match="before the first learners"):
                await monitor.code()
            cluster.learners(4)
            records = [record async for record in monitor.watch()]
            told = (await monitor.status(), await monitor.setup())
            code, policies = await monitor.code(), await monitor.policies()

        def blocking() -> None:
            with Monitor(address) as monitor:
                assert list(monitor.watch()) == records
                assert list(monitor.watch(4, seen_term=1, until_now=True)) == records[4:]
                assert monitor.status().committed == told[0].committed
                assert monitor.setup() == told[1]
                assert np.array_equal(monitor.code().matrix, code.matrix)
                assert monitor.policies().parameters.keys() == {0, 1, 2}

        await asyncio.to_thread(blocking)
    assert records == cluster.records()
    assert (told[0].state, told[0].committed) == (RunState.FINISHED, 6)
    assert told[0].unit_list == tuple(Unit(agents=(index,), part=0) for index in range(3))
    assert told[1].config == from_elsewhere(to_toml(cluster.config)).config
    assert np.array_equal(code.matrix, make_code("cyclic", rows=4, units=3).matrix)
    assert (policies.iteration, policies.term) == (5, 1)


async def test_the_example_runs(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved()) as cluster:
        cluster.serve(4)
        await cluster.finished()
        command = [sys.executable, str(EXAMPLE), await monitor_of(cluster)]
        run = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=False
        )
    assert run.returncode == 0, run.stderr
    assert "cooperative_navigation, 3 agents" in run.stdout
    assert run.stdout.count("iteration ") == 4
    assert "bottleneck: " in run.stdout
    assert len(EXAMPLE.read_text().splitlines()) <= 30


async def test_status_says_where_a_run_stands_in_words_and_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Cluster(tmp_path, resolved()) as cluster:
        cluster.serve(4)
        await cluster.finished()
        assert await asyncio.to_thread(fullrank, "run", "status", str(tmp_path)) == 0
        words = capsys.readouterr().out
        address = await monitor_of(cluster)
        assert await asyncio.to_thread(fullrank, "run", "status", address, "--json") == 0
        facts = json.loads(capsys.readouterr().out)
    assert "finished, 4 of 4 iterations" in words
    assert "bottleneck: " in words
    assert re.search(r"^ms an iteration: collect [\d.]+, assign .*, update [\d.]+$", words, re.M)
    assert re.search(r"^MB an iteration: parameters 0\.\d+, ", words, re.M)
    times = r"^play [\d.]+ ms, update [\d.]+ ms, iteration [\d.]+ ms, [\d,]+ agent-updates/s$"
    assert re.search(times, words, re.M)
    assert re.search(r"^[\d,]+ environment steps, [\d,]+ a second$", words, re.M)
    assert words.startswith(f"{tmp_path.name} on host: FINISHED\nresults: {tmp_path}\n")
    assert len(words.splitlines()) == 2 + 7 + 1 + 4  # object, headlines, headers, learners
    assert (facts["state"], facts["committed"], len(facts["learners"])) == ("FINISHED", 4, 4)
    assert facts["bottleneck"]["phase"] in facts["phases_s"]
    assert facts["bytes"]["parameters"] > 0  # vectors pass through shared memory


async def test_eval_plays_what_the_monitor_publishes_as_it_plays_the_run_s_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Cluster(tmp_path, resolved()) as cluster:
        cluster.serve(4)
        await cluster.finished()
        address = await monitor_of(cluster)
        words = ("--episodes", "3", "--no-random", "--json")
        for run in ((str(tmp_path),), (address,), (address, "--follow")):
            assert await asyncio.to_thread(fullrank, "eval", *run, *words) == 0
    here, there, followed = map(json.loads, capsys.readouterr().out.splitlines())
    assert here == there == followed
    assert here["iteration"] == 3
    assert not (tmp_path / "evaluations.jsonl").exists()


class Printed:
    """What threads print, in whole lines; capsys may lose one that is printed while it reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._out, self._err = StringIO(), StringIO()
        monkeypatch.setattr(sys, "stdout", self._out)
        monkeypatch.setattr(sys, "stderr", self._err)

    def shown(self) -> list[str]:
        """Lines of output."""
        return self._out.getvalue().split("\n")[:-1]

    def told(self) -> list[str]:
        """Lines of errors."""
        return self._err.getvalue().split("\n")[:-1]

    def tells(self, words: str) -> bool:
        """Whether a line of errors has these words."""
        return any(words in line for line in self.told())


async def test_follow_outlasts_a_controller_that_is_away_and_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_module, "PERIOD_S", 0.01)
    printed = Printed(monkeypatch)
    async with Cluster(tmp_path, resolved("iterations=6")) as cluster:
        cluster.replay()
        controller = cluster.controller()
        await monitor_of(cluster)
        for _ in range(4):
            await cluster.fake(Fault.STALL, at=2)
        words = ("run", "status", str(tmp_path), "--follow", "--json")
        watching = asyncio.create_task(asyncio.to_thread(fullrank, *words))
        await eventually(lambda: len(printed.shown()) == 2, what="two iterations")
        await controller.end()
        await eventually(lambda: printed.tells("away"), what="it is away")
        cluster.controller()
        cluster.learners(4)
        assert await asyncio.wait_for(watching, WAIT_S) == 0
    written = (tmp_path / METRICS).read_text().splitlines()
    assert list(map(json.loads, printed.shown())) == list(map(json.loads, written))
    assert all(line.startswith("controller away: ") for line in printed.told())


async def test_a_program_that_watches_sees_each_iteration_once_over_a_restart(
    tmp_path: Path,
) -> None:
    address = free_address()
    settings = resolved("iterations=6", f"monitor.address={address}")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.replay()
        controller = cluster.controller()
        await monitor_of(cluster)
        for _ in range(4):
            await cluster.fake(Fault.STALL, at=2)
        seen: list[tuple[int, int]] = []

        async def watch() -> None:
            async with AsyncMonitor(address) as monitor:
                async for each in monitor.watch():
                    seen.append((each.iteration, each.term))

        watching = asyncio.create_task(watch())
        await eventually(lambda: len(seen) == 2, what="two iterations")
        await controller.end()
        cluster.controller()
        cluster.learners(4)
        await asyncio.wait_for(watching, WAIT_S)
    assert seen == [(0, 1), (1, 1), (2, 2), (3, 2), (4, 2), (5, 2)]


async def test_a_watch_that_has_not_begun_or_is_given_up_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = free_address()
    async with AsyncMonitor(address) as monitor:
        with pytest.raises(ServiceLost):
            await anext(monitor.watch())
    monkeypatch.setattr(monitor_module, "AWAY_S", 0.3)
    settings = resolved("iterations=100000", f"monitor.address={address}")
    async with Cluster(tmp_path, settings) as cluster, AsyncMonitor(address) as monitor:
        cluster.replay()
        controller = cluster.controller()
        cluster.learners(4)
        await cluster.status_when(lambda status: status.iterations_committed > 0, what="begun")
        records = monitor.watch()
        await anext(records)
        await controller.end()
        with pytest.raises(ServiceLost):
            async for _ in records:
                pass


async def test_a_run_that_is_unknown_or_has_no_controller_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fullrank("run", "status", str(tmp_path / "none")) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert fullrank("run", "status", "127.0.0.1:1") == 9
    assert capsys.readouterr().err.count("\n") == 1
