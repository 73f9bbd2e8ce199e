"""Containers of ``deploy/config/cmarl`` that are lost: sizes, heads, and the run recomputed."""

import io
import re
import tarfile
from pathlib import PurePath

import docker
import numpy as np
from docker.models.containers import Container

_SIZES = (
    (r"batch_size = 128", r"batch_size = 16"),
    (r"copies = 39", r"copies = 6"),
    (r"^( *)block = 13.*$", r"\1block = 2\n\1warmup_episodes = 16"),
    (r"^( *)(learners = 2)$", r"\1\2\n\1containers.batch_size = 8"),
)


_WHOLE = "\n[checkpoint]\nkeep = 1000\n"
"""The journal reaches back as far as checkpoints: to the beginning, however long a test waits."""


def smaller(text: str) -> str:
    """``deploy/config/cmarl/run.toml`` in sizes for two cores, with the whole journal kept."""
    for shipped, size in _SIZES:
        text, count = re.subn(shipped, size, text, flags=re.MULTILINE)
        assert count == 1, shipped
    return text + _WHOLE


VERIFY = (
    "mkdir /tmp/run && cp -r /var/lib/fullrank/run/. /tmp/run"
    " && cp -r --sparse=always /var/lib/fullrank/replay/replay /tmp/run && fullrank verify /tmp/run"
)
"""Verify a run whose table lies on a volume of its own: the table last, to which a run adds."""


def verified(engine: docker.DockerClient, *, controller: Container, replay: Container) -> str:
    """Output of ``fullrank verify`` in a container with the volumes of both; raises if it fails.

    Stops the controller first: a run that went on would be as much work again.
    """
    controller.stop()
    verifying = engine.containers.run(
        controller.attrs["Image"],
        entrypoint=["sh", "-c", VERIFY],
        volumes_from=[str(controller.name), str(replay.name)],
        user="root",
        network_mode="none",
        detach=True,
    )
    try:
        code, output = verifying.wait()["StatusCode"], verifying.logs().decode()
    finally:
        verifying.remove(force=True)
    assert code == 0, output
    return str(output)


def indices_of(host: str, controller: Container) -> list[int]:
    """The index of a learner or collector each time that it joined, from the controller's log."""
    joined = re.compile(rf'_joined \w+=(\d+) .*host={host}"')
    return [int(index) for index in joined.findall(controller.logs().decode())]


def updates_of_heads(controller: Container) -> dict[int, int]:
    """Updates behind the heads that a controller's container keeps for those that learn."""
    try:
        stream, _ = controller.get_archive("/var/lib/fullrank/run/heads")
    except docker.errors.NotFound:
        return {}
    found = {}
    with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
        for member in archive:
            name, file = PurePath(member.name), archive.extractfile(member)
            if file is not None and name.suffix == ".npz" and name.stem.isdecimal():
                found[int(name.stem)] = int(np.load(io.BytesIO(file.read()))["updates"])
    return found
