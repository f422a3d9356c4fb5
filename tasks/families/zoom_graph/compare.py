"""Stage `compare_rows`: the choices of the rows in a range of names, if the links of all rows are rebuilt.

`zoom_links` refreshes the links of the previous version in one part. If there is none, or too much has changed, all
rows are compared with all. That is quadratic, so the rows are cut into ranges, each a part, and `zoom_links` joins
their choices. The key and output of `zoom_links` are the same either way, and no version lists the parts of ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.zoom_graph.schema import DOCUMENT_VECTORS
from indexmill.retrieve.directions import unit_vectors
from indexmill.retrieve.grid import on_grid
from indexmill.retrieve.shared_schema import NAMES
from indexmill.store.pack_checks import row_lengths
from indexmill.store.pack_schema import SMALLEST, Array, PackSchema, pointers, smallest
from tasks.core.shards import bit_ranges
from tasks.core.stage import Input, Output, Outputs, Part, Stage, StageSettings, worker_arg
from tasks.families.zoom_graph.blocks import cells_of
from tasks.families.zoom_graph.choose import Choices, Coding, LinkedRows, LinkRule, choose, order_of
from tasks.families.zoom_graph.moments import Moments

Pack = Mapping[str, NDArray[Any]]

SOURCES = {"documents": "document_vectors", "entities": "names"}
"""The output with the vectors of each kind of row."""

INPUTS = (
    Input("document_vectors", DOCUMENT_VECTORS, each=True, optional=True),
    Input("names", NAMES, stage="embed_names", each=True, optional=True),
)

PACKS_PER_RANGE = 128
"""The number of packs of vectors above which rows are cut into more ranges."""

_MOST_BITS = 6  # maximum bits of names that define a range: each part reads all vectors

CHOICES = PackSchema(
    "the choices of the rows in a range",
    {
        "limits": Array("int64", ("rows",), "the similarity that a row's choices exceed"),
        "sums": Array("int64", ("rows",), "the sum of each row: see `tasks.families.zoom_graph.moments`"),
        "squares": Array("int64", ("rows",), "the sum of squares of each row"),
        "indptr": pointers("rows", "choices", "the first choice of each row, and the end", SMALLEST),
        "partners": Array(SMALLEST, ("choices",), "the chosen rows, by their numbers among all"),
        "steps": Array("int16", ("choices",), "similarities"),
        "cells": Array(SMALLEST, ("rows",), "the number of each row's nearest centre"),
    },
)


@dataclass(frozen=True)
class CompareLinkSettings(StageSettings):
    """The settings of the links of one kind: see `LinkRule`. encoder: the settings that determine vectors."""

    threshold: float = 3.0
    cap: int = 64
    exact_rows: int = 65_536
    encoder: Mapping[str, Any] | None = worker_arg(None)

    @property
    def rule(self) -> LinkRule:
        return LinkRule(self.threshold, self.cap, self.exact_rows)


@dataclass(frozen=True)
class CompareSettings(CompareLinkSettings):
    """The settings of a range. bits: the first bits of its rows' names. source: the name of the inputs with vectors."""

    bits: str = ""
    source: str = "document_vectors"


def row_ranges(packs: int) -> list[str]:
    """Return the first bits of the names in each range. packs: the number of packs of vectors."""
    return bit_ranges(packs, PACKS_PER_RANGE, _MOST_BITS)


def linked_rows(packs: Sequence[Pack], read_vectors: Sequence[bool] | None = None) -> LinkedRows:
    """Return the rows of packs of vectors. read_vectors: whether to read each pack's vectors; None for all."""
    read_vectors = [True] * len(packs) if read_vectors is None else read_vectors
    names = [pack["entity_keys" if "entity_keys" in pack else "keys"] for pack in packs]
    joined = np.concatenate([np.empty(0, dtype=np.uint64), *names])
    order = order_of(joined)
    has_vector = np.asarray(read_vectors, dtype=bool).repeat([len(one) for one in names])
    (some,) = has_vector[order].nonzero()
    place = np.full(len(joined), -1)  # the position of each row's vector
    place[order[some]] = np.arange(len(some))
    vectors, first = np.empty((len(some), packs[0]["vectors"].shape[1] if packs else 1), dtype=np.int16), 0
    for pack, pack_names, has in zip(packs, names, read_vectors, strict=True):
        if has:
            at = place[first : first + len(pack_names)]
            stays = at >= 0
            vectors[at[stays]] = _on_grid(pack)[stays]
        first += len(pack_names)
    return LinkedRows(joined[order], vectors, None if len(some) == len(order) else some)


def _on_grid(pack: Pack) -> NDArray[np.int16]:
    """Return a pack's vectors on the grid. Vectors of names are normalised and rounded; others are on the grid."""
    vectors = pack["vectors"]
    return on_grid(unit_vectors(vectors)).astype(np.int16) if "entity_keys" in pack else vectors


def rows_of(names: NDArray[np.uint64], bits: str) -> slice:
    """Return the range of rows whose names begin with some bits. names: ascending."""
    rest = 64 - len(bits)
    first = int(bits or "0", 2) << rest
    last = first + (1 << rest) - 1
    return slice(int(names.searchsorted(np.uint64(first))), int(names.searchsorted(np.uint64(last), side="right")))


def choices_of(rows: LinkedRows, packs: Sequence[Pack]) -> Iterator[Choices]:
    """Yield the choices in the packs of all ranges, in their order."""
    coding, first = Coding(len(rows)), 0
    for pack in packs:
        lengths = row_lengths(pack["indptr"])
        owners = np.arange(first, first + len(lengths)).repeat(lengths)
        keys = coding.keys(owners, pack["steps"].astype(np.int64), pack["partners"].astype(np.int64))
        yield Choices(keys, Moments(pack["sums"], pack["squares"]), pack["limits"])
        first += len(lengths)


def _compute(part: Part[CompareSettings]) -> Outputs:
    settings = part.settings
    rows = linked_rows(part.packs(settings.source))
    some = rows_of(rows.names, settings.bits)
    choices, coding = choose(rows, settings.rule, some), Coding(len(rows))
    bounds = coding.owners(choices.keys).searchsorted(np.arange(some.start, some.stop + 1))
    return Outputs(
        packs={
            "choices": {
                "limits": choices.limits,
                "sums": choices.moments.sums,
                "squares": choices.moments.squares,
                "indptr": smallest(bounds),
                "partners": smallest(coding.partners(choices.keys)),
                "steps": coding.steps(choices.keys).astype(np.int16),
                "cells": smallest(cells_of(rows, some)),
            }
        }
    )


STAGE = Stage(
    "compare_rows",
    version=2,
    compute=_compute,
    libraries=("numpy",),
    expensive=True,
    listed=False,
    inputs=INPUTS,
    outputs=(Output("choices", CHOICES),),
)
