"""Make the Helm chart deploy/chart from the manifests of kustomize, or compare it with them.

The kustomizations deploy/k8s/chart/claims and deploy/k8s/chart/store render the base with Helm's
expressions in place of values. Objects that differ between them depend on ``store.url``; resources
that a container asks for may be replaced as a whole. Needs kubectl (tools/kubectl.py).
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import yaml

from fullrank.common.durable import replace_bytes

ROOT = Path(__file__).resolve().parents[1]
SOURCES, CHART = ROOT / "deploy/k8s/chart", ROOT / "deploy/chart"
HEADER = "{{- /* Written by tools/chart.py from deploy/k8s. */ -}}\n"


def objects(source: str) -> dict[str, str]:
    """Render a source; return the template of each object by its kind and name."""
    kubectl = Path(sys.executable).with_name("kubectl")
    command = [str(kubectl), "kustomize", str(SOURCES / source)]
    rendered = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = [each for each in yaml.safe_load_all(rendered) if each]
    return {f"{each['kind']} {each['metadata']['name']}": template(each) for each in found}


def template(manifest: dict[str, object]) -> str:
    """Write an object with its expressions bare."""
    text = "---\n" + yaml.safe_dump(manifest, width=10_000, sort_keys=False)
    text = re.sub(r"'(.*\{\{.*)'$", lambda m: m[1].replace("''", "'"), text, flags=re.MULTILINE)
    text = re.sub(
        r"^( *\w+): \?(\S+)$", r"{{- with \2 }}\n\1: {{ . }}\n{{- end }}", text, flags=re.MULTILINE
    )
    # The name of the ConfigMap follows its contents, so that pods restart with it.
    text = re.sub(
        r"configuration-[0-9a-z]{10}$",
        'configuration-{{ include "run" . | sha256sum | trunc 10 }}',
        text,
        flags=re.MULTILINE,
    )
    if manifest["kind"] == "StatefulSet":
        role = re.search(r"component: (\w+)", text)
        assert role is not None
        given = f"{{{{- with .Values.resources.{role[1]} }}}}\n\\1resources: {{{{ toJson . }}}}\n"
        branches = f"{given}{{{{- else }}}}\n\\g<0>{{{{- end }}}}\n"
        text = re.sub(r"^( +)resources:\n(?:\1 +.*\n)+", branches, text, flags=re.MULTILINE)
    return text


def chart() -> dict[Path, str]:
    """Return the generated files of the chart."""
    claims, store = objects("claims"), objects("store")
    parts = []
    for key in dict.fromkeys([*claims, *store]):
        first, second = claims.get(key, ""), store.get(key, "")
        if first == second:
            parts.append(first)
        else:
            branches = (("if .Values.store.url", second), ("if not .Values.store.url", first))
            parts += [
                f"{{{{- {asked} }}}}\n{text}{{{{- end }}}}\n" for asked, text in branches if text
            ]
    return {
        CHART / "templates/run.yaml": HEADER + "".join(parts),
        CHART / "run.toml": (ROOT / "deploy/config/run.toml").read_text(encoding="utf-8"),
    }


def main() -> int:
    """Write the chart, or return 1 if it is stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail if the chart is stale")
    if parser.parse_args().check:
        stale = [path for path, text in chart().items() if path.read_text() != text]
        for path in stale:
            print(f"chart: {path} is stale: run tools/chart.py", file=sys.stderr)
        return int(bool(stale))
    for path, text in chart().items():
        replace_bytes(path, text.encode(), mode=0o644)
    return 0


if __name__ == "__main__":
    sys.exit(main())
