"""Converts Arrow rows to records, for the readers of Parquet files, tables and databases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa


def records_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch as records. A value that Python cannot represent is the error, such as ValueError."""
    columns = {name: _to_microseconds(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    for row in range(batch.num_rows):
        yield {name: _value(column[row]) for name, column in columns.items()}


def _value(scalar: pa.Scalar[Any]) -> Any:
    try:
        return scalar.as_py(maps_as_pydicts="strict")
    except (ValueError, KeyError, OverflowError) as error:
        return error


def _to_microseconds(column: pa.Array[Any]) -> pa.Array[Any]:
    """Truncate nanoseconds to microseconds, the precision of Python's datetime; Arrow would raise an error."""
    kind = column.type
    if getattr(kind, "unit", "") != "ns":
        return column
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    return column.cast(pa.time64("us") if pa.types.is_time64(kind) else pa.duration("us"), safe=False)
