"""The monitor's messages decoded into the status, code and configuration of a run."""

import json

import numpy as np

from fullrank.algorithms import Unit
from fullrank.config.toml import from_toml
from fullrank.rpc.codec import decode_agent
from fullrank.rpc.run_status import (
    BlocksStatus,
    CodeInUse,
    CollectorStatus,
    ContainerStatus,
    ForecastStatus,
    LearnerStatus,
    PlanStatus,
    RunState,
    RunStatus,
    Setup,
)
from fullrank.v1 import controller_pb2
from fullrank.v1 import monitor_pb2 as pb

_STATES = {
    controller_pb2.RUN_STATE_STARTING: RunState.STARTING,
    controller_pb2.RUN_STATE_RUNNING: RunState.RUNNING,
    controller_pb2.RUN_STATE_STALLED: RunState.STALLED,
    controller_pb2.RUN_STATE_FINISHED: RunState.FINISHED,
}


def decode_status(message: controller_pb2.GetStatusResponse) -> RunStatus:
    """A status from its message."""
    return RunStatus(
        run=message.run,
        term=message.term,
        epoch=message.epoch,
        state=_STATES[message.state],
        message=message.message,
        committed=message.iterations_committed,
        iterations=message.iterations,
        rank=message.rank,
        units=message.units,
        unit_list=tuple(
            Unit(agent=unit.agent if unit.HasField("agent") else None, part=unit.part)
            for unit in message.unit_list
        ),
        round_s=message.round_s,
        caveats=tuple(message.caveats),
        learners=tuple(
            LearnerStatus(
                learner=status.learner,
                host=status.host,
                rows=tuple(status.rows),
                answered=status.answered,
                silent_s=status.silent_s,
                quarantined=status.quarantined,
                fingerprint=status.fingerprint,
                maps_table=status.maps_table,
                batch_bytes=status.batch_bytes,
                shares_memory=status.shares_memory,
                spare=status.spare,
            )
            for status in message.learners
        ),
        collectors=tuple(
            _decode_collector(status, free=not message.HasField("blocks"))
            for status in message.collectors
        ),
        playing=message.playing,
        blocks=_decode_blocks(message.blocks) if message.HasField("blocks") else None,
    )


def _decode_blocks(status: controller_pb2.BlocksStatus) -> BlocksStatus:
    return BlocksStatus(
        played=status.played,
        reassigned=status.reassigned,
        lost=status.lost,
        failed=status.failed,
        waiting=status.waiting,
        block_s=status.block_s,
        awaited_s=status.awaited_s,
    )


def _decode_collector(status: controller_pb2.CollectorStatus, *, free: bool) -> CollectorStatus:
    return CollectorStatus(
        collector=status.collector,
        host=status.host,
        fingerprint=status.fingerprint,
        spare=status.spare,
        blocks=status.blocks,
        block=(status.iteration, status.block) if status.playing and not free else None,
        playing_s=status.playing_s,
        lag=status.lag,
        silent_s=status.silent_s,
        failed=status.failed,
        block_s=status.block_s,
        idle=status.idle,
        reassigned=status.reassigned,
        free=free and status.playing,
        settled=status.settled,
        stale=status.stale,
        invalid=status.invalid,
        container=_decode_container(status.container) if status.HasField("container") else None,
    )


def _decode_container(status: controller_pb2.ContainerStatus) -> ContainerStatus:
    return ContainerStatus(
        played=status.played,
        handed_over=status.handed_over,
        updates=status.updates,
        published=status.published,
        divergence=status.divergence,
    )


def decode_code(message: pb.GetCodeResponse) -> CodeInUse:
    """A code from its message."""
    matrix = np.zeros((len(message.rows), message.units))
    for row in message.rows:
        matrix[row.row, list(row.units)] = row.coefficients
    return CodeInUse(
        epoch=message.epoch,
        name=message.name,
        parameters=json.loads(message.parameters),
        matrix=matrix,
        tolerance=message.tolerance,
        certificate=message.certificate,
        holders={holder.row: holder.learner for holder in message.holders},
        plan=_decode_plan(message.plan) if message.HasField("plan") else None,
    )


def _decode_plan(message: pb.Plan) -> PlanStatus:
    forecasts = tuple(
        ForecastStatus(code=forecast.code, mean_s=forecast.mean_s, cautious_s=forecast.cautious_s)
        for forecast in message.forecasts
    )
    return PlanStatus(code=message.code, reason=message.reason, forecasts=forecasts)


def decode_setup(message: pb.GetConfigurationResponse) -> Setup:
    """A configuration from its message."""
    return Setup(
        run=message.run,
        version=message.version,
        config=from_toml(message.configuration),
        agents=tuple(map(decode_agent, message.agents)),
    )
