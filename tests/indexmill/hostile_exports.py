"""Exports whose artifacts were changed and whose digests are right again, and a process that uses them.

Run as a program: it reads lines of JSON, ``[folder, artifact, change]``, and answers each with the name of what came of
it, so that whoever asks can tell which one hung, aborted or took too much memory.
"""

from __future__ import annotations

import io
import json
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner
from pydantic import JsonValue

import indexmill
from indexmill.command import cli
from indexmill.errors import IndexmillError
from indexmill.snapshot import Snapshot
from indexmill.store.artifact_listing import Artifact, describe_table
from indexmill.store.canonical import digest_of
from indexmill.store.exported import MANIFEST_FILE, exported_name
from indexmill.store.manifest import Manifest
from indexmill.store.packs import open_pack, write_pack

MEMORY = 6 << 30
"""Address space of the process: what its libraries map, and little more."""

SECONDS = 60

QUESTIONS = [
    "who paid for the marrow bridge?",
    "where does the ilse rise?",
    "Ada Venn of Tallow and the Grey Hills",
    "nothing that anybody knows",
]

Array = np.ndarray[Any, Any]


def changes_of(artifact: Artifact, folder: Path, manifest: Manifest) -> list[str]:
    """The names of all changes to one artifact."""
    found = [f"bytes::{name}" for name in _BYTES]
    path = folder / exported_name(artifact, manifest)
    if artifact.kind == "arrays":
        found += [f"array:{array}:{name}" for array in open_pack(path) for name in _ARRAYS]
    elif artifact.kind == "table":
        found += [f"table::{name}" for name in _TABLES]
        found += [f"table:{column}:{name}" for column in pq.read_schema(path).names for name in _COLUMNS]
    return found


def change(folder: Path, name: str, what: str) -> Callable[[], None]:
    """Change an artifact of an export, with its digest in the manifest; returns what undoes it."""
    listed = folder / MANIFEST_FILE
    before = listed.read_bytes()
    manifest = Manifest.from_bytes(before)
    (artifact,) = (one for one in manifest.artifacts if one.name == name)
    path = folder / exported_name(artifact, manifest)
    data = path.read_bytes()
    changed = _changed(data, path, what)
    told: dict[str, JsonValue] = {"bytes": len(changed), "digest": digest_of(changed)}
    path.write_bytes(changed)
    try:
        if artifact.kind == "arrays":
            told["schema_"] = dict(open_pack(path).schema)
        elif artifact.kind == "table":
            held = pq.ParquetFile(path)
            told |= {"rows": held.metadata.num_rows, "schema_": describe_table(held.schema_arrow)}
    except (IndexmillError, pa.ArrowException, OSError):
        pass
    artifacts = tuple(one.model_copy(update=told) if one is artifact else one for one in manifest.artifacts)
    listed.write_bytes(manifest.model_copy(update={"artifacts": artifacts}).to_bytes())

    def undo() -> None:
        path.write_bytes(data)
        listed.write_bytes(before)

    return undo


def _changed(data: bytes, path: Path, what: str) -> bytes:
    kind, where, how = what.split(":")
    if kind == "bytes":
        return _BYTES[how](data)
    if kind == "array":
        arrays = {name: np.array(array) for name, array in open_pack(path).items()}
        new = _ARRAYS[how](arrays.pop(where))
        return write_pack(None, arrays if new is None else {**arrays, where: new})
    table = pq.read_table(path)
    table = _COLUMNS[how](table, where) if where else _TABLES[how](table)
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


_BYTES: Mapping[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "flip first": lambda data: bytes([data[0] ^ 255]) + data[1:],
    "flip middle": lambda data: (
        data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 255]) + data[len(data) // 2 + 1 :]
    ),
    "flip near end": lambda data: data[:-9] + bytes([data[-9] ^ 255]) + data[-8:],
    "flip in header": lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:] if len(data) > 20 else data,
}


def _most(array: Array) -> Any:
    return np.iinfo(array.dtype).max if array.dtype.kind in "iu" else np.inf


def _least(array: Array) -> Any:
    return np.iinfo(array.dtype).min if array.dtype.kind in "iu" else np.nan


def _set(array: Array, at: int, value: Any) -> Array:
    if array.size:
        array.reshape(-1)[at] = value
    return array


_ARRAYS: Mapping[str, Callable[[Array], Array | None]] = {
    "missing": lambda array: None,
    "zeros": np.zeros_like,
    "ones": np.ones_like,
    "most": lambda array: np.full_like(array, _most(array)),
    "least": lambda array: np.full_like(array, _least(array)),
    "last most": lambda array: _set(array, -1, _most(array)),
    "first least": lambda array: _set(array, 0, _least(array)),
    "middle most": lambda array: _set(array, array.size // 2, _most(array)),
    "middle least": lambda array: _set(array, array.size // 2, _least(array)),
    "middle zero": lambda array: _set(array, array.size // 2, 0),
    "middle one more": lambda array: (
        _set(array, array.size // 2, array.reshape(-1)[array.size // 2] + 1) if array.size else array
    ),
    "reversed": lambda array: np.ascontiguousarray(array[::-1]),
    "counting": lambda array: np.arange(array.size).astype(array.dtype).reshape(array.shape),
    "one less": lambda array: array[:-1],
    "one more": lambda array: np.concatenate([array, array[-1:]]),
    "twice": lambda array: np.concatenate([array, array]),
    "none": lambda array: array[:0],
    "flat": lambda array: array.reshape(-1),
    "column": lambda array: array.reshape(len(array), 1, -1) if len(array) else array,
    "no width": lambda array: np.zeros((len(array), 0), array.dtype),
    "long and empty": lambda array: np.zeros((1 << 40, 0), array.dtype),
    "as float": lambda array: array.astype(np.float64),
    "as bytes": lambda array: array.astype(np.int8),
    "as large": lambda array: array.astype(np.uint64),
    "as bool": lambda array: array.astype(np.bool_),
}


def _column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    at = table.column_names.index(name)
    return table.set_column(at, table.schema.field(name).with_type(values.type), values)


def _extreme(table: pa.Table, name: str, integer: int, text: str) -> pa.Table:
    kind = table.schema.field(name).type
    if pa.types.is_integer(kind):
        return _column(table, name, pa.array([integer] * len(table), pa.int64()).cast(kind, safe=False))
    if pa.types.is_string(kind):
        return _column(table, name, pa.array([text] * len(table), kind))
    return table


_TABLES: Mapping[str, Callable[[pa.Table], pa.Table]] = {
    "no rows": lambda table: table.slice(0, 0),
    "one less": lambda table: table.slice(1),
    "twice": lambda table: pa.concat_tables([table, table]),
    "reversed": lambda table: table.take(pa.array(range(len(table) - 1, -1, -1), pa.int64())),
    "first row alone": lambda table: table.take(pa.array([0] * len(table), pa.int64())),
    "no columns": lambda table: table.select([]),
}

_COLUMNS: Mapping[str, Callable[[pa.Table, str], pa.Table]] = {
    "missing": lambda table, name: table.drop_columns([name]),
    "renamed": lambda table, name: table.rename_columns(
        [f"{one}_" if one == name else one for one in table.column_names]
    ),
    "nulls": lambda table, name: table.set_column(
        table.column_names.index(name),
        pa.field(name, table.schema.field(name).type),
        pa.nulls(len(table), table.schema.field(name).type),
    ),
    "number": lambda table, name: _column(table, name, pa.array(range(len(table)), pa.int64())),
    "text": lambda table, name: _column(table, name, pa.array(["x"] * len(table), pa.string())),
    "lists": lambda table, name: _column(table, name, pa.array([["x"]] * len(table), pa.list_(pa.string()))),
    "most": lambda table, name: _extreme(table, name, (1 << 31) - 1, "\N{MATHEMATICAL BOLD CAPITAL A}" * 1000),
    "least": lambda table, name: _extreme(table, name, -(1 << 31), ""),
    "json": lambda table, name: _extreme(table, name, 1, '{"year":' + "[" * 5000),
    "no unicode": lambda table, name: _column(
        table, name, pa.array([b"\xff\xfe"] * len(table), pa.binary()).view(pa.string())
    ),
}


def use(folder: Path) -> None:
    """Ask an export everything: all methods, filters, what ``show`` and its likes say, and an evaluation."""
    with indexmill.open(folder) as snapshot:
        for method in snapshot.methods:
            for _ in _asked(snapshot, method):
                pass
    for option in ([], ["--tree"], ["--communities"], ["--same-as"]):
        result = CliRunner().invoke(cli, ["show", *option, "--store", str(folder)])
        if result.exception is not None and not isinstance(result.exception, (SystemExit, IndexmillError)):
            raise result.exception


def _asked(snapshot: Snapshot, method: str) -> Iterator[None]:
    for given in ({}, {"where": {"year": 1}}, {"explain": False, "k": 40}):
        arguments: dict[str, Any] = {"k": 5, **given}
        try:
            snapshot.retrieve_batch(QUESTIONS, method=method, **arguments)
            snapshot.answer(QUESTIONS[0], method=method)
        except IndexmillError:
            pass
        yield


def _come_of(folder: Path) -> str:
    try:
        use(folder)
    except IndexmillError as error:
        return type(error).__name__
    return "used"


def serve() -> None:
    """Answer lines until there are none."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for line in sys.stdin:
        folder, name, what = json.loads(line)
        undo = change(Path(folder), name, what)
        signal.alarm(SECONDS)
        try:
            came = _come_of(Path(folder))
        except BaseException as error:
            import traceback

            where = traceback.extract_tb(error.__traceback__)[-1]
            came = f"raised {type(error).__name__}: {error} ({where.filename}:{where.lineno})"
        finally:
            signal.alarm(0)
            undo()
        print(json.dumps(came), flush=True)


if __name__ == "__main__":
    serve()
