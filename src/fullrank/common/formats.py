"""The format version of a configuration file and of the files of a run directory.

``config.toml``, ``run.json``, ``fence.json`` and the manifests of checkpoints state it; that of
``run.json`` holds for ``metrics.jsonl`` and ``history/``, too. Records of the journal and tables
have marks of their own, and peers name their version when they greet. It rises with every change
that an older reader would misunderstand.
"""

from fullrank.common.errors import VersionMismatch

FORMAT = 1
"""Written today. A file that states none, such as a user's configuration, reads as 1."""


def check_format(version: object, *, where: str) -> None:
    """Refuse a file of a format that this version of Fullrank does not know.

    Args:
        version: The version that the file states; 1 if it states none.
        where: Names the file in the message.

    Raises:
        VersionMismatch: The version is newer than ``FORMAT``, or is no version.
    """
    if type(version) is not int or not 1 <= version <= FORMAT:
        raise VersionMismatch(
            f"{where} has format {version!r}, and this version of Fullrank reads formats up to "
            f"{FORMAT}: install the version that wrote it, or a later one"
        )
