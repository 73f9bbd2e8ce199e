"""``fullrank compose``: generated Compose files."""

from typing import Annotated

import typer

from fullrank.cli.say import say

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _compose() -> None:
    """Write Compose files."""


OPENING = """\
# Written by: fullrank compose render --learners {learners}
# {learners} learners, each in the network of a straggler proxy of its own. For use with its base:
#   docker compose -f {base} -f THIS up
services:
  learner: {{deploy: {{replicas: 0}}}}
  controller: {{environment: {{FULLRANK__LEARNERS: "{learners}"}}}}
"""

PAIR = """
  straggler-{number}:
    extends: {{file: {base}, service: straggler}}
    profiles: !reset []
  learner-{number}:
    extends: {{file: {base}, service: learner}}
    network_mode: service:straggler-{number}
    environment:
      FULLRANK__CONTROLLER__ADDRESS: "127.0.0.1:50061"
      FULLRANK__TLS__SIDECAR: "true"
    depends_on: {{straggler-{number}: {{condition: service_started, restart: true}}}}
    deploy: {{replicas: 1}}
"""


def rendered(*, learners: int, base: str) -> str:
    """The Compose file; it lists every pair, since Compose cannot pair scaled services."""
    pairs = [PAIR.format(number=number, base=base) for number in range(learners)]
    return OPENING.format(learners=learners, base=base) + "".join(pairs)


@app.command()
def render(
    learners: Annotated[int, typer.Option("--learners", min=1, help="Number of learners N.")] = 4,
    base: Annotated[
        str, typer.Option("--base", help="Compose file to extend, relative to the new file.")
    ] = "docker-compose.yml",
) -> None:
    """Print an override file that gives every learner a straggler sidecar."""
    say(*rendered(learners=learners, base=base).splitlines())
