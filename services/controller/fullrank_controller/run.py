"""The parts of one run under one term."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from fullrank.audit.ledger import Ledger
from fullrank.common.types import LearnerId
from fullrank.config.tree import RunConfig
from fullrank.host.run_directory import is_socket, port_of
from fullrank.host.shared_memory import WrittenBlock
from fullrank.net.messages import unit_messages
from fullrank.run.round import OpenRound
from fullrank.runs.events import Assigned, EventLog
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring.training import plan_of
from fullrank_controller.collectors.free_pool import FreePool
from fullrank_controller.collectors.head_store import HeadStore
from fullrank_controller.collectors.keyed_pool import KeyedPool
from fullrank_controller.collectors.pool import CollectorPool
from fullrank_controller.identity import RunIdentity, TermGuard
from fullrank_controller.membership.member import Member, Numerics
from fullrank_controller.membership.membership import Membership
from fullrank_controller.membership.roster import Roster
from fullrank_controller.progress import RunProgress
from fullrank_controller.rounds.reception import Reception


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Owners of the run's state; each alone changes its own."""

    identity: RunIdentity
    welcome: pb.Welcome
    """Complete but for learner index and lease, and its place until it is bound."""
    block: WrittenBlock | None
    """The controller's block of shared memory; None where the system has none."""
    term_guard: TermGuard
    event_log: EventLog
    progress: RunProgress
    roster: Roster
    membership: Membership
    reception: Reception
    ledger: Ledger
    """Digests of the last iterations."""
    collectors: CollectorPool | None
    """Attached collectors; None if the controller plays itself."""

    @property
    def rosters(self) -> list[Roster]:
        """All attached processes."""
        return [self.roster] if self.collectors is None else [self.roster, self.collectors.roster]

    def assigned(self, opened: OpenRound[Any], rows: Iterable[tuple[int, LearnerId]]) -> None:
        """Log that learners are assigned rows of an open round."""
        ids = self.identity.ids(opened)
        self.event_log.append(
            Assigned(
                term=ids.term,
                epoch=ids.epoch,
                iteration=ids.iteration,
                attempt=ids.attempt,
                rows=tuple(rows),
            )
        )

    @classmethod
    def of(
        cls,
        config: RunConfig,
        identity: RunIdentity,
        *,
        welcome: pb.Welcome,
        block: WrittenBlock | None = None,
        event_log: EventLog,
        roster: Roster,
        progress: RunProgress,
        fix_numerics: Callable[[Numerics], None],
        heads: HeadStore | None = None,
    ) -> Self:
        """Make the parts that follow from the others."""
        ledger, collectors = Ledger(), None
        if config.collectors.count:
            pools: dict[str, Callable[..., CollectorPool]] = {
                "keyed": partial(KeyedPool, learners=roster),
                "free": partial(FreePool, heads=heads),
            }
            collectors = pools[config.collect.mode](
                plan=plan_of(config),
                settings=config.controller,
                roster=Roster(roster.verdicts, config.controller, role="collector"),
                progress=progress,
                event_log=event_log,
                identity=identity,
                agents=len(welcome.agents),
            )

        def fix(numerics: Numerics) -> None:
            fix_numerics(numerics)
            if collectors is not None:
                collectors.assign()  # who has them may play now

        membership = Membership(
            config,
            identity,
            roster=roster,
            progress=progress,
            event_log=event_log,
            fix_numerics=fix,
        )
        return cls(
            identity=identity,
            welcome=welcome,
            block=block,
            term_guard=TermGuard(identity.run_term, every_s=config.controller.heartbeat_s),
            event_log=event_log,
            progress=progress,
            roster=roster,
            membership=membership,
            reception=Reception(identity, membership, roster, ledger),
            ledger=ledger,
            collectors=collectors,
        )

    def served_at(self, address: str) -> None:
        """Complete the welcome by the socket or port at which learners are served."""
        if is_socket(address):
            self.welcome.socket = address
        else:
            self.welcome.port = port_of(address)

    def position(self) -> str:
        """Progress and learners, for a log line."""
        learners = [member.learner for member in self.roster.members]
        committed, iterations = self.progress.committed, self.progress.iterations
        return f"iteration {committed} of {iterations}, learners {learners}"

    def status_response(self) -> pb.GetStatusResponse:
        """The answer to GetStatus."""
        opened, now = self.reception.opened, asyncio.get_running_loop().time()
        pool, version = self.collectors, self.progress.applied
        return pb.GetStatusResponse(
            run=self.identity.name,
            term=self.identity.term,
            epoch=self.membership.epoch,
            state=self.progress.state,
            iterations_committed=self.progress.committed,
            iterations=self.progress.iterations,
            message="; ".join(filter(None, (self.progress.message, self.progress.warm_up))),
            exit_code=self.progress.exit_code,
            rank=opened.round.rank if opened else 0,
            units=self.identity.units,
            unit_list=unit_messages(self.identity.problem.units),
            caveats=self.progress.caveats,
            round_s=now - opened.began_at if opened else 0.0,
            learners=[self._learner_status(member, now) for member in self.roster.members],
            collectors=pool.statuses(version=version, now=now) if pool else (),
            playing=pool.waits_for() if pool else "",
            blocks=pool.blocks() if pool else None,
            verdicts=self.roster.verdicts.lines,
        )

    def _learner_status(self, member: Member, now: float) -> pb.LearnerStatus:
        assignment, opened = self.membership.assignment, self.reception.opened
        rows = assignment.rows_of(member) if assignment else []
        return pb.LearnerStatus(
            learner=member.learner,
            host=member.host,
            domain="/".join(member.domain),
            rows=rows,
            fingerprint=member.numerics.fingerprint if member.numerics is not None else "",
            quarantined=member.quarantined,
            spare=member.objection(self.roster.numerics),
            answered=opened is not None and not opened.round.rows.isdisjoint(rows),
            silent_s=now - member.heard_at,
            maps_table=member.maps_table,
            batch_bytes=member.batch_bytes,
            shares_memory=member.vectors is not None,
        )
