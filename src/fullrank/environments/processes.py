"""A copy of a foreign environment in a process of its own, behind shared memory.

Actions and results lie in an unnamed file that both processes map; a socket says whose turn it is.
The kernel frees the file with its last process, so that ``kill -9`` leaves nothing behind.
"""

import ctypes
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from fullrank.common.errors import EnvironmentFailed, FullrankError
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments.base import AgentSpec, Step, make_environment
from fullrank.environments.capabilities import offers_masks, shares_reward
from fullrank.environments.instances import Instances
from fullrank.environments.local_code import guard

PARENT_DEATH = 1
"""``PR_SET_PDEATHSIG`` of prctl(2): the signal that a process gets when its parent dies."""
GOODBYE_S = 5.0
"""Longest wait for an environment to close itself."""
ENTRY = "from fullrank.environments.processes import serve; serve()"


class Interface(NamedTuple):
    """An environment, as far as its results are described."""

    agents: tuple[AgentSpec, ...]
    state_size: int
    shared_reward: bool
    masked: bool

    @property
    def slot(self) -> np.dtype[Any]:
        """Layout of the shared memory."""
        seen = sum(agent.observation_size for agent in self.agents)
        acts, count = sum(agent.action.size for agent in self.agents), len(self.agents)
        return np.dtype(
            [
                ("action", np.float32, (1, acts)),
                ("available", np.bool_, (1, acts)),
                ("next_available", np.bool_, (1, acts)),
                ("observation", np.float32, (1, seen)),
                ("state", np.float32, (1, self.state_size)),
                ("reward", np.float64, (1, count)),
                ("terminated", np.bool_, (1, count)),
                ("alive", np.bool_, (1, count)),
                ("ended", np.bool_, (1,)),
            ],
            align=True,
        )

    def map(self, memory: int) -> Any:
        """Map the shared memory; the fields of the result are writable arrays."""
        return np.frombuffer(mmap.mmap(memory, self.slot.itemsize), self.slot, 1)[0]


class _Child:
    """The process of one copy, with the pipe and the memory that it shares with this one.

    Attributes:
        connection: Pipe to the process.
        memory: File descriptor of the shared memory.
        pid: Number of the process.
        episode: Number of the copy and seed of its episode, for messages; None before the first.
        steps: Steps of the episode, with one that was asked for.
    """

    def __init__(self, *task: object) -> None:
        self.connection, theirs = Pipe()
        memory = os.memfd_create("fullrank-environment")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", ENTRY, *map(str, (theirs.fileno(), memory))],
                pass_fds=(theirs.fileno(), memory),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a stop signal to the collector lets it close
            )
        except BaseException:
            os.close(memory)
            raise
        finally:
            theirs.close()
        self.memory, self.pid, self._reason = memory, self._process.pid, ""
        self.episode: tuple[int, int] | None = None
        self.steps = 0
        self.connection.send((os.getpid(), sys.path, guard().policy, *task))

    def ask(self, what: object) -> None:
        """Send a request.

        Raises:
            EnvironmentFailed: The process has ended.
        """
        try:
            self.connection.send(what)
        except OSError:
            raise self._ended() from None

    def answer(self) -> Any:
        """Return the answer of the process.

        Raises:
            EnvironmentFailed: The environment raised, or its process has ended.
        """
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        if isinstance(answer, str):
            raise EnvironmentFailed(answer)
        return answer

    def _ended(self) -> EnvironmentFailed:
        ended = f"its process has ended with exit code {self._reap()}"
        reason = self._reason or ended
        if self.episode is None:
            return EnvironmentFailed(reason)
        copy, seed = self.episode
        return EnvironmentFailed(f"copy {copy}: {reason} in step {self.steps} of seed {seed}")

    def end(self, reason: str) -> None:
        """Kill the process, with all that it started; requests then fail with the reason."""
        self._reason = self._reason or reason
        self._signal()

    def _signal(self) -> None:
        if self._process.returncode is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def close(self) -> None:
        """Let the environment close itself; kill a process that does not end."""
        self.connection.close()
        self._reap()
        os.close(self.memory)

    def _reap(self) -> int:
        """Wait for the end of the process, which is killed if it does not come; its exit code."""
        try:
            return self._process.wait(GOODBYE_S)
        except subprocess.TimeoutExpired:
            self._signal()
            return self._process.wait()


class EnvironmentProcess:
    """An ``Environment`` of one copy, with the capabilities of ``Instances`` but ``Watched``.

    ``ask_reset`` and ``ask_step`` return at once; ``reset`` and ``step`` then return the answer,
    and wait for it while ``connection`` has none to read. Any thread may call ``end``.

    Args:
        name: Registered name of an adapter, or ``package.module:factory``.
        agents: M, or 0 for the environment's own number.
        params: The environment's parameters.
    """

    copies, pauses = 1, True

    def __init__(self, name: str, *, agents: int, params: Mapping[str, Any]) -> None:
        self._child, self._asked = _Child(name, agents, dict(params)), False
        self.connection = self._child.connection

    def begin(self) -> None:
        """Wait until the environment is made.

        Raises:
            EnvironmentFailed: It cannot be made.
        """
        interface: Interface = self._child.answer()
        self.agents, self.state_size, self.shared_reward, self.masked = interface
        self._slot = interface.map(self._child.memory)

    def ask_reset(self, seed: int, *, copy: int) -> None:
        """Start an episode; ``copy`` is the number by which messages name it."""
        self._child.episode, self._child.steps = (copy, seed), 0
        self._child.ask((seed, copy))
        self._asked = True

    def ask_step(self, action: FloatArray) -> None:
        """Advance by a joint action, shape (1, sum of action sizes)."""
        self._slot["action"] = action
        self._child.steps += 1
        self._child.ask(None)
        self._asked = True

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """Start new episodes; see ``Environment.reset``."""
        if not self._asked:
            self.ask_reset(seeds[0], copy=copies[0])
        self._asked = False
        self._child.answer()
        return np.array(self._slot["observation"])

    def step(self, action: FloatArray) -> Step:
        """Step the copy, or finish the step that ``ask_step`` began; see ``Environment.step``."""
        if not self._asked:
            self.ask_step(action)
        self._asked = False
        self._child.answer()
        return Step(*(np.array(self._slot[name]) for name in Step._fields))

    def state(self) -> FloatArray:
        """Return the global states; see ``Stated``."""
        return np.array(self._slot["state"])

    def available(self) -> BoolArray:
        """Return the available actions; see ``Masked``."""
        return np.array(self._slot["available"])

    def next_available(self) -> BoolArray:
        """Return the available actions after the last step; see ``OwnLimits``."""
        return np.array(self._slot["next_available"])

    def end(self, reason: str) -> None:
        """Kill the process, with all that it started; requests then fail with the reason."""
        self._child.end(reason)

    @property
    def pid(self) -> int:
        """Return the number of the process."""
        return self._child.pid

    def close(self) -> None:
        """Let the environment close itself; kill a process that does not end."""
        self._child.close()


def serve() -> None:
    """Play one copy for the parent process, until it closes its connection or dies."""
    connection, memory = Connection(int(sys.argv[1])), int(sys.argv[2])
    parent, path, policy, name, agents, params = connection.recv()
    ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGKILL)
    if os.getppid() != parent:
        return
    sys.path[:] = path
    guard().policy = policy  # the word for code is that of the parent process
    try:
        environment = make_environment(name, agents=agents, copies=1, **params)
        assert isinstance(environment, Instances)
        _play(environment, connection, memory)
    except (EOFError, ConnectionError):
        environment.close()
    except Exception as error:
        connection.send(str(error) if isinstance(error, FullrankError) else repr(error))


def _play(environment: Instances, connection: Connection, memory: int) -> None:
    interface = Interface(
        environment.agents,
        environment.state_size,
        shares_reward(environment),
        offers_masks(environment),
    )
    os.ftruncate(memory, interface.slot.itemsize)
    slot = interface.map(memory)
    connection.send(interface)
    while True:
        asked = connection.recv()
        if asked is None:
            step = environment.step(slot["action"])
            for field, value in zip(Step._fields, step, strict=True):
                slot[field] = value
        else:
            seed, environment.first_copy = asked
            slot["observation"] = environment.reset([seed], [0])
        slot["available"], slot["state"] = environment.available(), environment.state()
        slot["next_available"] = environment.next_available()
        connection.send(None)
