"""`indexmill.yaml` as `indexmill init` writes it: every setting with its default and its purpose.

It is generated from the configuration model, so that no setting is forgotten and no default is stale.
"""

from __future__ import annotations

import textwrap
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from schemas.config.configuration import Configuration
from schemas.corpus import CorpusSettings

_HEADER = """\
# The configuration of an index. It shows every setting with its default; delete those you do not change.
# Paths are relative to this file. The command line's --store and --corpus override it.
"""


def explained_configuration(values: dict[str, Any]) -> str:
    """Write a configuration file that sets `values` (nested like the file) and shows every other default."""
    return _HEADER + "\n" + "\n".join(_section(Configuration, values, 0)) + "\n"


def _section(model: type[BaseModel], values: dict[str, Any], depth: int) -> list[str]:
    indent = "  " * depth
    lines: list[str] = []
    for name, field in model.model_fields.items():
        below = _model_of(name, field)
        if depth == 0 and lines:
            lines.append("")
        if field.description:
            lines += textwrap.wrap(
                field.description, 110 - len(indent), initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
            )
        elif below is not None and below.__doc__:
            lines.append(f"{indent}# {below.__doc__.strip().splitlines()[0]}")
        if below is not None:
            lines.append(f"{indent}{name}:")
            lines += _section(below, values.get(name, {}), depth + 1)
            continue
        default = values.get(name, field.get_default(call_default_factory=True))
        if default is PydanticUndefined:
            raise ValueError(f"the setting {name!r} has no default and must be given")
        lines.append(f"{indent}{name}: {scalar(default)}")
    return lines


def _model_of(name: str, field: FieldInfo) -> type[BaseModel] | None:
    if name == "corpus":
        return CorpusSettings
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def scalar(value: Any) -> str:
    """Return the value of a setting as one line of YAML."""
    plain = value if isinstance(value, (dict, list, tuple, int, float)) or value is None else str(value)
    text: str = yaml.safe_dump(plain, default_flow_style=True, allow_unicode=True, width=1000, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")
