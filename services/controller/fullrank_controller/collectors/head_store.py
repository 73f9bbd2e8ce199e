"""Heads of containers: the newest one of each goes to all of them, and survives any restart."""

import asyncio
import logging
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np

from fullrank.common.durable import replace_bytes
from fullrank.common.errors import FullrankError, InvalidContribution
from fullrank.common.foreign import open_regular
from fullrank.net.messages import head_message, head_of
from fullrank.training.heads import ContainerHead, Heads
from fullrank.v1 import controller_pb2 as pb

log = logging.getLogger(__name__)


class HeadStore:
    """Keeps the newest head of each container, in memory and in the run's directory.

    Args:
        folder: Its files, ``<container>.npz``, which are read now.
        size: Entries of a head.
        confirm: Raises if a later controller has the directory.

    Attributes:
        messages: All heads, for publications; another list whenever one is newer.
    """

    def __init__(self, folder: Path, *, size: int, confirm: Callable[[], None]) -> None:
        self._folder, self._confirm, self._heads = folder, confirm, Heads(size)
        self._unsaved = set[int]()
        self._saving: asyncio.Task[None] | None = None
        for path in sorted(folder.glob("[0-9]*.npz")):
            self._load(path)
        self.messages = self._encoded()

    def _load(self, path: Path) -> None:
        try:
            with open_regular(path) as file, np.load(file, allow_pickle=False) as content:
                head = ContainerHead(int(content["updates"]), content["values"])
            message = head_message(int(path.stem), head)
            self._heads.publish(message.container, head_of(message, size=self._heads.size))
        except Exception as error:  # damaged bytes raise almost anything
            log.warning("head_unreadable path=%s reason=%s", path, error)

    def _encoded(self) -> list[pb.ContainerHead]:
        return [head_message(container, head) for container, head in self._heads]

    def updates_of(self, container: int) -> int:
        """Return the number of updates behind a container's newest head, 0 without one."""
        head = self._heads.of(container)
        return head.version if head is not None else 0

    def take(self, container: int, message: pb.ContainerHead) -> str:
        """Take a container's head unless a newer one is held; return why it is refused, or "".

        Raises:
            InvalidContribution: It is another container's, or no head of this run.
        """
        if message.container != container:
            raise InvalidContribution(
                f"head.container is {message.container}, expected {container}"
            )
        head = head_of(message, size=self._heads.size)
        if self._heads.publish(container, head):
            self.messages = self._encoded()
            self._save(container)
        return "" if head.is_finite else f"its head of {head.version} updates is not finite"

    def _save(self, container: int) -> None:
        """Write a head as soon as the disk has taken those before."""
        self._unsaved.add(container)
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._write_all())

    async def _write_all(self) -> None:
        while self._unsaved:
            container = self._unsaved.pop()
            head = self._heads.of(container)
            assert head is not None  # taken
            try:
                await asyncio.to_thread(self._write, container, head)
            except (OSError, FullrankError) as error:  # the run goes on without
                log.warning("head_not_saved container=%d reason=%s", container, error)

    def _write(self, container: int, head: ContainerHead) -> None:
        content = BytesIO()
        np.savez(content, updates=head.version, values=head.values)
        self._confirm()
        replace_bytes(self._folder / f"{container}.npz", content.getvalue())
