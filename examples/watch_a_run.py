"""Watch a run: print each committed iteration, the code, and the bottleneck.

python examples/watch_a_run.py 127.0.0.1:50053
"""

import sys

from fullrank.client import Monitor
from fullrank.runs.time_budget import bottleneck, spent


def main(address: str) -> None:
    with Monitor(address) as monitor:
        setup = monitor.setup()
        print(f"{setup.config.environment.name}, {len(setup.agents)} agents")
        records = []
        for record in monitor.watch():  # past iterations, then new ones, to the end of the run
            records.append(record)
            value = "-" if record.return_mean is None else f"{record.return_mean:.1f}"
            print(f"iteration {record.iteration}: return {value}, without {list(record.late)}")
        code = monitor.code()
        print(f"C of {code.name} in epoch {code.epoch}:")
        print(code.matrix.round(2))
        print(f"bottleneck: {bottleneck(spent(records))}")


if __name__ == "__main__":
    main(sys.argv[1])
