"""Status of a run that has ended, from its directory: no service need run any more."""

from pathlib import Path

from fullrank.common.errors import FullrankError
from fullrank.common.foreign import TEXT, parse_json, read_regular
from fullrank.config.toml import read_config
from fullrank.rpc.run_status import RunState, RunStatus
from fullrank.runs.caveats import disputes_of, lasting_caveats
from fullrank.runs.ending import read_ending
from fullrank.runs.identity import IDENTITY
from fullrank.runs.verdicts import read_verdicts


def ended_status(run_dir: Path) -> RunStatus | None:
    """The status of the run in a directory; None unless it is finished or has failed."""
    ending = read_ending(run_dir)
    if ending is None:
        return None
    facts = parse_json(read_regular(run_dir / IDENTITY, TEXT.size), origin=IDENTITY)
    try:
        iterations = read_config(run_dir).iterations
    except FullrankError:  # it failed before it had a configuration
        iterations = 0
    return RunStatus(
        run=str(facts.get("run", "")),
        term=int(facts.get("term", 0)),
        state=RunState(ending.state),
        message=ending.reason,
        exit_code=ending.exit_code,
        committed=ending.committed,
        iterations=iterations,
        caveats=(*disputes_of(run_dir), *lasting_caveats(run_dir)),
        verdicts=tuple(map(str, read_verdicts(run_dir))),
    )
