"""Write docs/configuration.md, from its first section on, from the configuration tree and classes.

The text of a key is the string under its field, or its line under ``Args:`` of the class.
``--check`` fails if the page is stale.
"""

import argparse
import dataclasses
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Lt

from fullrank.algorithms import algorithms
from fullrank.common.registry import Registry
from fullrank.common.types import SettingReach
from fullrank.config import PluginSettings, RunConfig
from fullrank.config.auto_code import code_choices
from fullrank.config.elsewhere import reach_of, reaches
from fullrank.config.leaves import SECTIONS
from fullrank.conformance.documentation import texts
from fullrank.environments.base import environments
from fullrank.stragglers import delay_models

PAGE = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"

REGISTRIES: Mapping[str, Registry[Any]] = {
    "environment": environments,
    "algorithm": algorithms,
    "code": code_choices,
    "stragglers": delay_models,
}

KINDS = {bool: "true or false", int: "integer", float: "number", str: "text"}


def kind(hint: Any) -> str:
    """Describe the valid values of a type in words."""
    if get_origin(hint) is Annotated:
        plain, *metadata = get_args(hint)
        named = [info for info in metadata if isinstance(info, str)]
        return " ".join(named or [kind(plain), *_bounds(metadata)])
    if get_origin(hint) is Literal:
        return " or ".join(f"`{json.dumps(choice)}`" for choice in get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(kind(part) for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is tuple:
        return "list"
    if get_origin(hint) is not None:
        return "table"
    return KINDS[hint]


def _bounds(metadata: list[Any]) -> Iterator[str]:
    for bound in (part for info in metadata for part in getattr(info, "metadata", [])):
        match bound:
            case Ge(ge=least):
                yield f"≥ {least}"
            case Gt(gt=least):
                yield f"> {least}"
            case Lt(lt=most):
                yield f"< {most}" if most < 2**32 else ""


def keys(cls: type, prefix: str) -> str:
    """Keys of a dataclass as a Markdown list."""
    about, hints = texts(cls), get_type_hints(cls, include_extras=True)
    lines = []
    for field in dataclasses.fields(cls):
        if field.init and field.name != "params" and (prefix or field.name not in SECTIONS):
            local = (
                reaches().get(prefix + field.name, reach_of(hints[field.name]))
                is SettingReach.LOCAL
            )
            kinds = kind(hints[field.name]).strip() + (", local" if local else "")
            text = about.get(field.name, "").replace("``", "`")
            item = f"* `{prefix}{field.name}` ({kinds}; {_default(field)}): {text}"
            lines.append(textwrap.fill(item, 120, subsequent_indent="  ", break_on_hyphens=False))
    return "\n".join(lines)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{json.dumps(field.default)}`" if field.default is not None else "unset"
    if field.default_factory is not dataclasses.MISSING:
        return f"`{json.dumps(field.default_factory())}`"
    return "required"


def page() -> str:
    """Contents of the page."""
    opening, _, _ = PAGE.read_text(encoding="utf-8").partition("\n## ")
    parts = [opening, "## The run\n", keys(RunConfig, "")]
    defaults = RunConfig()
    for field in dataclasses.fields(RunConfig):
        settings = getattr(defaults, field.name)
        if dataclasses.is_dataclass(settings):
            parts += [f"\n## [{field.name}]\n", *_section(field.name, settings)]
    return "\n".join(parts) + "\n"


def _section(name: str, settings: Any) -> Iterator[str]:
    cls = type(settings)
    if cls is PluginSettings:
        yield f'`{name}.name` selects the class; the default is `"{settings.name}"`.'
    else:
        yield f"{_first_line(cls)}\n"
        yield keys(cls, f"{name}.")
    for plugin in REGISTRIES.get(name, ()):
        registered = REGISTRIES[name].get(plugin)
        yield f'\n### {name}.name = "{plugin}"\n\n{_summary(registered, plugin)}\n'
        has_keys = any(field.init for field in dataclasses.fields(registered))
        yield keys(registered, f"{name}.") if has_keys else "It takes no parameter."


def _summary(cls: type, plugin: str) -> str:
    """First line of the module if it is named for the plug-in, else of the class."""
    module = sys.modules[cls.__module__]
    return _first_line(module if module.__name__.endswith(f".{plugin}") else cls)


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0].replace("``", "`")


def main() -> int:
    """Write the page, or compare it with the committed one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail if the page is stale")
    if parser.parse_args().check:
        if PAGE.read_text() == page():
            return 0
        print("docs/configuration.md is stale; run python tools/configuration.py")
        return 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
