"""The state machine of a run: what may be ordered, given what has happened.

It decides the order in which a run collects, samples, computes, applies, stores and checkpoints,
which decides the parameters that act and the transitions that a minibatch may hold, and so the
bits. It knows no clock, thread, file, socket or array: any host that executes its orders commits
the same iterations, however long each order takes and whichever is done first.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fullrank.run.orders import (
    Amend,
    Apply,
    Assemble,
    Audit,
    Begin,
    Collect,
    Compute,
    Done,
    Draw,
    Drawn,
    Durable,
    Finish,
    Hurry,
    MakeDurable,
    Open,
    Play,
    RunEvent,
    RunOrder,
    Save,
    Settle,
    Stop,
    TakeCheckpoint,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The course of a run: collections, and the updates over each of them."""

    iterations: int
    """Updates of the whole run."""
    updates: int = 1
    """K, the updates over one collection."""
    lag: int = 0
    """Collections that are played ahead: one is played with the parameters that its predecessors
    but for the last ``lag`` have made."""
    ahead: int = 1
    """Iterations that may be applied before the next one begins, and not be durable."""
    checkpoint_every: int = 0
    """Iterations between checkpoints; 0: none, not even at the end."""

    def position(self, iteration: int) -> tuple[int, int]:
        """The collection of an iteration, and its step k in 0 .. K - 1."""
        return divmod(iteration, self.updates)


class RunMachine:
    """A run between two states: all that is still to do, in an order that fixes its bits.

    Args:
        program: The course of the run.
        applied: Iterations in the state from which it resumes, between two collections.
        known: Iterations whose update the log holds; those after ``applied`` are repeated.

    Attributes:
        applied: Iterations whose update the parameters hold.
        stored: Iterations that are durable.
        saved: Iterations in the newest checkpoint.
        finished: True once all are durable and audited.
    """

    def __init__(self, program: Program, *, applied: int = 0, known: int = 0) -> None:
        self.program = program
        self.applied = self.stored = self.saved = self._shipped = applied
        self.finished = False
        self._known = max(known, applied)
        self._ordered: set[RunOrder] = set()
        self._done: set[RunOrder] = set()
        self._drawn = applied
        self._stopped: Stop | None = None
        self._asked = self._wanted = False
        self._resumed = applied

    @property
    def least(self) -> int:
        """Fewest iterations that the run can still have: what is known, and begun collections."""
        begun = [order.collection for order in self._ordered if isinstance(order, Play | Collect)]
        known = max(self.applied, self._known)
        return max(known, (max(begun, default=-1) + 1) * self.program.updates)

    @property
    def extensible(self) -> bool:
        """True if a longer run would have given the same orders so far."""
        current, _ = self.program.position(self.applied)
        last, _ = self.program.position(self.program.iterations - 1)
        return self.applied < self.program.iterations and current + self.program.lag <= last

    def step(self, event: RunEvent) -> list[RunOrder]:
        """Take an event; returns the orders that may be executed from now on, all at once."""
        match event:
            case Begin():
                pass
            case Drawn(iteration):
                self._drawn = iteration + 1
            case Durable(iterations):
                self._shipped = iterations
            case Stop():
                self._stopped = event
            case Save():
                self._asked = True
            case Amend(iterations):
                self.program = replace(self.program, iterations=iterations)
            case Done(order):
                self._take(order)
        due = self._due() if self._stopped is None else self._closing(self._stopped)
        fresh = []
        for order in due:  # what is due may depend on what was just ordered
            if order not in self._ordered:
                self._ordered.add(order)
                fresh.append(order)
        return fresh

    def _take(self, order: RunOrder) -> None:
        """Take into account that an order is executed."""
        match order:
            case Apply(iteration):
                self.applied = iteration + 1
                self._wanted, self._asked = self._wanted or self._asked, False
                if iteration < self._known:
                    self.stored = self.applied
            case MakeDurable(iteration):
                self.stored = max(iteration + 1, self._shipped)
            case Draw(iteration):
                self._drawn = iteration + 1
            case TakeCheckpoint(iterations):
                self.saved, self._wanted = iterations, False
            case Finish():
                self.finished = True
        self._done.add(order)
        if isinstance(order, Apply):
            self._ordered = set(filter(self._matters, self._ordered))
            self._done &= self._ordered

    def _matters(self, order: RunOrder) -> bool:
        """True unless an order belongs to iterations that are over."""
        match order:
            case Play(collection) | Collect(collection):
                return collection >= self.program.position(self.applied)[0]
            case Settle(number) | Draw(number) | Audit(number) | Compute(number):
                return number >= self.applied
            case MakeDurable(number) | Apply(number):
                return number >= self.stored
            case TakeCheckpoint(number) | Hurry(number):
                return number >= self.applied
        return True

    def _due(self) -> Iterator[RunOrder]:
        """Everything that may be done by now."""
        last = self.program.iterations
        if self.applied == last == self._resumed:
            yield from self._ending()
            return
        yield Open()
        if self._known < last:
            yield Assemble()
        if Open() not in self._done:
            return
        if self.stored < self.applied:
            yield MakeDurable(self.stored)
        if self._saving:
            yield from self._hurry()
            if self.stored == self.applied:
                yield TakeCheckpoint(self.applied)
        elif self.applied < self._known:
            yield from self._repeat(self.applied)
        elif self.applied == last:
            yield from self._ending()
        else:
            if 2 * (self.applied - self.stored) > self.program.ahead:  # before the run must wait
                yield from self._hurry()
            if Assemble() in self._done and self.applied <= self.stored + self.program.ahead:
                yield from self._iterate(self.applied)

    @property
    def _saving(self) -> bool:
        """True if nothing may begin before a checkpoint of the applied iterations."""
        applied, every = self.applied, self.program.checkpoint_every
        if not every or applied < self._known or not self._resumable:
            return False
        due = self._wanted or applied in (self._known, self.program.iterations)
        return due or applied // every > self.saved // every

    @property
    def _resumable(self) -> bool:
        """True between two collections, the only states from which a run resumes."""
        at_border = self.program.position(self.applied)[1] == 0
        return self.applied > self.saved and (at_border or self.applied == self.program.iterations)

    def _repeat(self, iteration: int) -> Iterator[RunOrder]:
        """Collect again what an iteration had collected, and apply its known update."""
        collection, _ = self.program.position(iteration)
        yield Collect(collection)
        if Collect(collection) in self._done:
            yield from self._play_ahead(iteration)
            yield from self._apply(iteration)

    def _iterate(self, iteration: int) -> Iterator[RunOrder]:
        """Collect, draw, compute and apply."""
        collection, _ = self.program.position(iteration)
        if Collect(collection) not in self._ordered:
            yield Play(collection)
        yield Settle(iteration)
        if Settle(iteration) not in self._done:
            return
        yield Collect(collection)
        collected = Collect(collection) in self._done
        if collected and self._drawn <= iteration:
            yield Draw(iteration)
        if self._drawn <= iteration:
            return
        yield Audit(iteration)
        if Audit(iteration) not in self._done:
            return
        yield from self._play_ahead(iteration)
        yield Compute(iteration)
        if collected and Compute(iteration) in self._done:
            yield from self._apply(iteration)

    def _play_ahead(self, iteration: int) -> Iterator[RunOrder]:
        """Begin the collections that are to act with the parameters before an update."""
        collection, step = self.program.position(iteration)
        last, _ = self.program.position(self.program.iterations - 1)
        if step == 0:
            for later in range(collection + 1, min(collection + self.program.lag, last) + 1):
                yield Play(later)

    def _apply(self, iteration: int) -> Iterator[RunOrder]:
        """Apply, unless a collection still acts with the parameters before."""
        if all(order in self._done for order in self._ordered if isinstance(order, Play)):
            yield Apply(iteration)

    def _ending(self) -> Iterator[RunOrder]:
        """Finish once every iteration is durable and no dispute is open."""
        last = Audit(self.program.iterations)
        yield from self._hurry()
        if self.stored == self.applied:
            yield last
            if last in self._done:
                yield Finish()

    def _hurry(self) -> Iterator[RunOrder]:
        """Have durable what is applied: nothing goes on before, or soon will not."""
        if self.stored < self.applied and self.program.ahead > 1:
            yield Hurry(self.applied)

    def _closing(self, stop: Stop) -> Iterator[RunOrder]:
        """Make durable what is applied, and keep the state for whoever resumes."""
        void = stop.void or Apply(self.applied) in self._ordered  # which steps the parameters
        if self.stored < self.applied:
            yield from self._hurry()
            yield MakeDurable(self.stored)
        elif self._resumable and self.applied < self.program.iterations and not void:
            yield TakeCheckpoint(self.applied)
