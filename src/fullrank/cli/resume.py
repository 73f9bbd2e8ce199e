"""``fullrank resume``: an interrupted run goes on."""

from fullrank.cli.log import starting
from fullrank.cli.options import RunArgument, TrustOption
from fullrank.cli.runs import adopt, find_run, runnable_config
from fullrank.cli.say import say
from fullrank.cli.train import LocalOption
from fullrank.common.errors import ConfigError
from fullrank.host.run_directory import lock_launch
from fullrank.runs.identity import check_continues


def resume(run: RunArgument, local: LocalOption = False, trust: TrustOption = None) -> None:
    """Continue a run from its newest checkpoint, on local services or in this process."""
    path = find_run(run)
    if not (path / "config.toml").exists():
        raise ConfigError(f"{path} holds no config.toml; it is not a run directory")
    check_continues(path)
    config = runnable_config(path, trust)
    say(starting("resume"))
    from fullrank.cli.running import run_to_end  # imports gRPC, which no wrong setting waits for

    with lock_launch(path):
        adopt(path)
        run_to_end(path, config, local=local)
