"""A part that breaks what its stage declares is not kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from indexmill.store.pack_schema import Array, PackSchema
from storage.folder import FolderStore
from storage.receipts import find
from tasks.core.part_runner import PartSpec
from tasks.core.stage import NoSettings, Output, Outputs, Part, Stage
from tests.tasks.making import Parts

ARRAYS: dict[str, Any] = {}
NUMBERS = pa.schema([pa.field("x", pa.int64(), nullable=False)])


def _compute(_: Part[NoSettings]) -> Outputs:
    return Outputs(packs={"numbers": ARRAYS})


SCHEMA = PackSchema(
    "numbers", {"low": Array("int32", ("rows",), "low ones"), "high": Array("int32", ("rows",), "high")}
)
STAGE = Stage("numbers", 1, _compute, outputs=(Output("numbers", SCHEMA),))


@pytest.mark.parametrize(
    ("high", "wrong"),
    [
        (np.zeros(3, np.int64), "array 'high' is int64"),
        (np.zeros(2, np.int32), "'high' has the shape"),
        (None, r"lacks \['high'\]"),
    ],
)
def test_arrays_that_break_their_schema_are_not_kept(store: FolderStore, high: Any, wrong: str) -> None:
    ARRAYS.clear()
    ARRAYS["low"] = np.zeros(3, np.int32)
    if high is not None:
        ARRAYS["high"] = high
    parts, spec = Parts(store), PartSpec("p", {}, NoSettings())
    with pytest.raises(ValueError, match=wrong):
        parts.make(STAGE, spec)
    assert find(store, STAGE.name, parts.inputs(STAGE, spec).job.key) is None
    ARRAYS["high"] = np.zeros(3, np.int32)
    assert parts.make(STAGE, spec).receipt.rows == {"numbers": 3}
