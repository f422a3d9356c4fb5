"""Reference pages generated from the code: commands, settings, the format's tables and arrays, the Python API.

`python -m infra.reference PAGE` prints a page: commands, settings, format or api.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
from pydantic import TypeAdapter

import indexmill
import tasks.registry  # noqa: F401 - declares the tables of families
from indexmill.command import cli
from indexmill.mistakes import allowed_values
from indexmill.retrieve.method_registry import METHODS
from indexmill.retrieve.reader_family import load
from indexmill.retrieve.schemas import PACKS
from indexmill.store.pack_schema import Array
from indexmill.store.sbom_reader import SBOM
from schemas.config import Configuration
from schemas.config.explained import scalar
from schemas.tables import TABLES

OPTIONS = ("option", "meaning")
Node = Mapping[str, Any]
"""A node of a JSON schema."""


def commands() -> Iterator[str]:
    """Yield every command with its options; options that all commands share come first."""
    context = click.Context(cli, info_name="indexmill")
    shared = _options(cli, context)
    yield from ("# Commands", "", "Options of every command, before or after its name:", "", *_grid(OPTIONS, shared))
    yield from _commands(cli, context, shared)


def _commands(group: click.Group, context: click.Context, shared: Collection[Sequence[str]]) -> Iterator[str]:
    for name in group.list_commands(context):
        if command := group.get_command(context, name):
            below = click.Context(command, context, info_name=name)
            usage = " ".join([below.command_path, *command.collect_usage_pieces(below)])
            yield from ("", f"{'#' * len(below.command_path.split())} {below.command_path}", "")
            yield from ("```", usage, "```", "", inspect.cleandoc(command.help or ""), "")
            yield from _grid(OPTIONS, [row for row in _options(command, below) if row not in shared])
            yield from _commands(command, below, shared) if isinstance(command, click.Group) else ()


def _options(command: click.Command, context: click.Context) -> list[Sequence[str]]:
    records = [record for param in command.params if (record := param.get_help_record(context))]
    return [(f"`{names.replace('|', ' or ')}`", meaning) for names, meaning in records if meaning]


def settings() -> Iterator[str]:
    """Yield every setting with its default, the allowed values and its purpose."""
    schema = Configuration.model_json_schema()
    yield from ("# Settings", "", "`indexmill init` writes a file with all of them, `indexmill config` prints yours.")
    yield from _section("", schema, schema)


def _section(above: str, section: Node, schema: Node) -> Iterator[str]:
    rows: list[tuple[str, ...]] = []
    sections: list[tuple[str, Node, Node]] = []
    for name, field in section["properties"].items():
        key = f"{above}.{name}".removeprefix(".")
        inside = list(_sections(key, field, schema))
        if name == "parameters":
            parameters = TypeAdapter(load(METHODS[above.rpartition(".")[2]].parameters)).json_schema()
            inside = [(key, parameters, parameters)]
        sections += inside
        if "$ref" not in field or not inside:
            default = "required" if name in section.get("required", ()) else f"`{scalar(field.get('default', {}))}`"
            values = allowed_values(field, schema).replace("greater than or equal to", "≥")
            values = values.replace("less than or equal to", "≤")
            rows.append((f"`{name}`", default, values, field.get("description", "")))
    yield from ("", f"{'#' * (above.count('.') + 2)} {above}", "", section["description"]) if above else ()
    yield from ("", *_grid(("setting", "default", "values", "meaning"), rows))
    for below in sections:
        yield from _section(*below)


def _sections(key: str, node: Node, schema: Node) -> Iterator[tuple[str, Node, Node]]:
    """Yield (key, section, complete schema) for each section that a setting may contain."""
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
        if "properties" in node:
            kind = node["properties"].get("kind", {}).get("const")
            yield f"{key} of kind {kind}" if kind else key, node, schema
    for branch in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _sections(key, branch, schema)
    for entry in (node.get("items"), node.get("additionalProperties")):
        yield from _sections(key, entry, schema) if isinstance(entry, dict) else ()


def tables() -> Iterator[str]:
    """Yield the artifacts of a snapshot, the columns of its tables, and the arrays of its packs."""
    encoder = "the model that encodes a question, opened without torch; absent if the encoder needs no files"
    sbom = "the software of the environment that built it, in CycloneDX's JSON; only if `run.sbom` is set"
    artifacts = [
        *((f"`{name}`", "table", table.holds) for name, table in sorted(TABLES.items())),
        *((f"`{name}`", "arrays", pack.holds) for name, pack in PACKS.items()),
        *(("`encoder/<file>`", "file", encoder), (f"`{SBOM}`", "file", sbom)),
    ]
    yield from ("# Tables and arrays", "", "## Artifacts", "", *_grid(("name", "kind", "holds"), artifacts))
    yield from ("", "## Columns of tables")
    for name, table in sorted(TABLES.items()):
        columns = (
            (f"`{column.name}`", f"`{column.type}`{' or null' * column.nullable}", table.columns[column.name])
            for column in table.schema
        )
        yield from ("", f"### `{name}`", "", *_grid(("column", "type", "holds"), columns))
    yield from ("", "## Arrays of packs")
    for name, pack in PACKS.items():
        arrays = (
            (f"`{name}`", f"`{array.dtype}`", " x ".join(map(str, array.shape)), _values(array), array.holds)
            for name, array in pack.arrays.items()
        )
        yield from ("", f"### `{name}`", "", *_grid(("array", "type", "dimensions", "values", "holds"), arrays))
        yield from (line for check in pack.checks for line in ("", f"Besides, {check.holds}."))


def _values(array: Array) -> str:
    """Describe the order and the bounds that a reader checks in an array's values."""
    bounds = [f"from 0 to {array.into}, ascending" * bool(array.into), "ascending" * array.rising]
    if array.below != "":
        bounds.append(f"{array.least or 0} to less than {array.below}")
    elif array.least is not None:
        bounds.append(f"{array.least} at least")
    return "; ".join(filter(None, bounds))


def api() -> Iterator[str]:
    """Yield the public names, which mkdocstrings replaces by their signatures and docstrings; errors come last."""
    names = sorted(indexmill.__all__, key=lambda name: (hasattr(indexmill.errors, name), name))
    docs = {name: inspect.getdoc(getattr(indexmill, name)) or "" for name in names}
    rows = ((f"[`{name}`](#indexmill.{name})", doc.partition("\n")[0]) for name, doc in docs.items())
    yield from ("# The Python API", "", *_grid(("name", "meaning"), rows))
    yield from (line for name in names for line in ("", f"::: indexmill.{name}"))


def _grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    return lines if len(lines) > 2 else []


PAGES = {"commands": commands, "settings": settings, "format": tables, "api": api}

if __name__ == "__main__":
    print(*PAGES[sys.argv[1]](), sep="\n")
