"""Generate the typed stubs in src/fullrank/v1 from protos/; ``--check`` fails on a difference.

``make protos`` runs it in an environment with tools/protos-requirements.txt: stubs from the oldest
supported grpcio-tools run on every newer protobuf, never the reverse.
"""

import argparse
import filecmp
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[1]
PROTOS = ROOT / "protos"
STUBS = ROOT / "src" / "fullrank" / "v1"
SCRIPTS = Path(sys.executable).parent
PLUGINS = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")
HEADER = '"""Generated from protos/fullrank/v1 by tools/protos.py; never edited."""\n'


def generate(target: Path) -> Path:
    """Write the stubs below ``target`` and return their folder."""
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    arguments = [
        "protoc",
        f"-I{PROTOS}",
        f"-I{files('grpc_tools') / '_proto'}",
        *(f"--plugin={plugin}={SCRIPTS / plugin}" for plugin in PLUGINS),
        f"--python_out={target}",
        f"--grpc_python_out={target}",
        f"--mypy_out={target}",
        f"--mypy_grpc_out={target}",
        *sources,
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protos: protoc failed; see its message above")
    folder = target / "fullrank" / "v1"
    for grpc_stub in folder.glob("*_pb2_grpc.py"):
        if "class " not in grpc_stub.read_text():  # a file of messages has no service
            grpc_stub.unlink()
            grpc_stub.with_suffix(".pyi").unlink(missing_ok=True)
    (folder / "__init__.py").write_text(HEADER)
    return folder


def main() -> int:
    """Regenerate the stubs, or compare them with the committed ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the stubs are stale")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        fresh = generate(Path(scratch))
        names = {path.name for path in fresh.iterdir()}
        committed = {path.name for path in STUBS.iterdir() if path.suffix in {".py", ".pyi"}}
        differ = filecmp.cmpfiles(fresh, STUBS, names & committed, shallow=False)
        stale = sorted((names ^ committed) | set(differ[1]))
        if check:
            if stale:
                print(f"protos: stale stubs {', '.join(stale)}; run `make protos`")
            return bool(stale)
        for name in committed - names:
            (STUBS / name).unlink()
        for name in names:
            (STUBS / name).write_bytes((fresh / name).read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
