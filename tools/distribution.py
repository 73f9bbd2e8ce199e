"""Contents of a release: the distributions that Fullrank depends on, and their licences.

``licences`` writes docs/licences.md; ``materials FOLDER`` writes a bill of materials in CycloneDX
1.6 for every image. Both read the metadata of installed distributions: of this environment or, with
``--site-packages``, of one that was copied out of an image.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "licences.md"
LISTS = ROOT / "deploy" / "requirements"
IMAGES: Mapping[str, str] = {
    "controller": "controller",
    "learner": "learner",
    "collector": "collector",
    "replay": "services",
    "straggler": "services",
    "dashboard": "dashboard",
}
"""The lock of each image."""
TORCH = ("controller", "learner", "collector")
"""Images that install torch, whose builds have locks of their own."""
EXTRAS = ("mpe", "grids", "onnx", "video", "s3", "dashboard", "otel")
"""Extras whose licences are listed; ``wandb`` brings a service's client and terms of its own."""

SIGNED_OFF: Mapping[str, str] = {
    "0BSD": r"\b0BSD\b",
    "Apache-2.0": r"apache",
    "BSD": r"(?<!0)\bbsd",
    "BSL-1.0": r"\bbsl-1",
    "CC0-1.0": r"\bcc0",
    "ISC": r"\bISC\b",
    "LGPL-2.1": r"\blgpl",
    "MIT": r"\bmit\b",
    "PSF-2.0": r"python software foundation|\bpsf\b",
    "Zlib": r"\bzlib\b",
}
"""Licences that may be distributed beside Fullrank's, and what metadata say of each."""
READ: Mapping[str, str] = {"lbforaging": "MIT License", "rware": "MIT License"}
"""Licences of distributions whose metadata name none, as read in their repositories."""


def installed(folder: Path | None = None) -> dict[str, Distribution]:
    """Distributions by name, of a folder of packages or of this environment."""
    found = distributions() if folder is None else distributions(path=[str(folder)])
    return {canonicalize_name(each.metadata["Name"]): each for each in found}


def closure(requirements: Iterable[str], known: Mapping[str, Distribution]) -> dict[str, set[str]]:
    """Names of the distributions that requirements install, each with its own requirements."""
    needed: dict[str, set[str]] = {}
    waiting = [Requirement(text) for text in requirements]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while waiting:
        wanted = waiting.pop()
        name, extras = canonicalize_name(wanted.name), ("", *sorted(wanted.extras))
        if name not in known or (name, extras) in seen:
            continue
        seen.add((name, extras))
        for part in map(Requirement, known[name].requires or ()):
            if part.marker is None or any(part.marker.evaluate({"extra": e}) for e in extras):
                waiting.append(part)
                needed.setdefault(name, set()).add(canonicalize_name(part.name))
        needed[name] = needed.get(name, set()) & known.keys()
    return needed


def licences(distribution: Distribution) -> list[str]:
    """The signed-off licences that a distribution names; empty if it names none of them."""
    facts = distribution.metadata
    named = [line for line in facts.get_all("Classifier") or () if line.startswith("License")]
    stated = facts["License-Expression"] or " ".join([*named, (facts["License"] or "")[:200]])
    text = READ.get(canonicalize_name(facts["Name"]), stated)
    return [name for name, words in SIGNED_OFF.items() if re.search(words, text, re.IGNORECASE)]


def table() -> dict[str, list[str]]:
    """Licences of all that Fullrank and its extras install, by distribution."""
    known = installed()
    names = sorted(closure([f"fullrank[{','.join(EXTRAS)}]"], known).keys() - {"fullrank"})
    return {name: licences(known[name]) for name in names}


def write_licences() -> None:
    """Write the page.

    Raises:
        SystemExit: A distribution has a licence that is not signed off.
    """
    rows = table()
    if unknown := [name for name, found in rows.items() if not found]:
        raise SystemExit(f"licences to sign off: {', '.join(unknown)}")
    lines = [f"| {name} | {', '.join(found)} |\n" for name, found in rows.items()]
    opening, rule, _ = PAGE.read_text(encoding="utf-8").partition("|---|---|\n")
    PAGE.write_text(opening + rule + "".join(lines), encoding="utf-8")


def materials(image: str, known: Mapping[str, Distribution]) -> str:
    """The bill of materials of an image, CycloneDX 1.6 as JSON."""
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.license import DisjunctiveLicense
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    lists = [IMAGES[image], *(["torch-cpu"] if image in TORCH else [])]
    locks = "".join((LISTS / f"{each}.txt").read_text(encoding="utf-8") for each in lists)
    needed = closure(re.findall(r"^[\w.-]+(?===)", locks, re.MULTILINE), known)
    bom = Bom()
    own = known["fullrank"].version
    bom.metadata.component = root = Component(
        name=f"fullrank-{image}", version=own, type=ComponentType.CONTAINER
    )
    parts = {
        name: Component(
            name=name,
            version=known[name].version,
            type=ComponentType.LIBRARY,
            purl=PackageURL("pypi", None, name, known[name].version),
            licenses=[DisjunctiveLicense(name=each) for each in licences(known[name])],
        )
        for name in (*sorted(needed), "fullrank")
    }
    for part in parts.values():
        bom.components.add(part)
    bom.register_dependency(root, parts.values())
    for name, names in needed.items():
        bom.register_dependency(parts[name], [parts[each] for each in sorted(names)])
    return str(JsonV1Dot6(bom).output_as_string(indent=2))


def main() -> int:
    """Write the requested files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    kinds.add_parser("licences", help="write docs/licences.md")
    bills = kinds.add_parser("materials", help="write a bill of materials for every image")
    bills.add_argument("folder", type=Path)
    bills.add_argument("--site-packages", type=Path, help="packages to read instead of one's own")
    words = parser.parse_args()
    if words.kind == "licences":
        write_licences()
        return 0
    known = installed(words.site_packages)
    words.folder.mkdir(parents=True, exist_ok=True)
    for image in IMAGES:
        (words.folder / f"{image}.cdx.json").write_text(materials(image, known), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
