"""The checks of a group of written texts: its rows and vectors must match its nodes and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tasks.core.checks import check_lengths, refuse_if
from tasks.core.shards import id_hashes
from tasks.core.stage import Part
from tasks.stages.embed.embed import row_key


def check_rows(
    rows: pl.DataFrame,
    nodes: Sequence[str],
    paths: Sequence[str],
    pack: Mapping[str, NDArray[Any]],
    *,
    label: str,
    names: tuple[str, str, str],
    letters: str,
    embedded: Callable[..., str] = str,
) -> dict[str, int]:
    """Compare a group's texts with its nodes and vectors; return the number of texts.

    rows: a table of ids, layers, the columns that are embedded, and digests, in this order. nodes, paths: the expected
    ids, and the bits that assign each id to a group. names: the names of the table, of the input with the nodes, and of
    the vectors.
    """
    table, made_of, vectors = names
    where = f"{table}/{label}"
    ids, layers, *inner, digests = rows.get_columns()
    row_for_each = f"a row for each of the {made_of}, in the order of their ids"
    refuse_if(ids.to_list() != list(nodes), f"{where}: expected {row_for_each}")
    refuse_if(bool((layers != letters.index(label[0]) + 1).any()), f"{where}: the nodes belong to another layer")
    strange = [node for node, path in zip(nodes, paths, strict=True) if not path.startswith(label[1:])]
    refuse_if(bool(strange), f"{where}: {strange[:1]} belongs to another group")
    texts = [embedded(*row) for row in zip(*(column.to_list() for column in inner), strict=True)]
    _check_vectors(pack, f"{vectors}/{label}", texts, where, digests.to_list())
    refuse_if(not np.array_equal(pack["keys"], id_hashes(nodes)), f"{vectors}/{label}: vectors belong to other nodes")
    return {table: len(nodes)}


def check_text_vectors(
    part: Part[Any], vectors: str, texts: Sequence[str], table: str = "", digests: Sequence[str] | None = None
) -> Mapping[str, NDArray[Any]]:
    """Check that texts match their digests in a table, if given, and the rows of a vector pack; return that pack."""
    label, pack = part.job.shard, part.pack(vectors)
    _check_vectors(pack, f"{vectors}/{label}", texts, f"{table}/{label}", digests)
    return pack


def _check_vectors(
    pack: Mapping[str, NDArray[Any]], where: str, texts: Sequence[str], table: str, digests: Sequence[str] | None
) -> None:
    """Compare some texts with their digests and vectors. where, table: the names of the vectors and of the texts."""
    expected = [row_key(text).hex() for text in texts]
    refuse_if(digests is not None and list(digests) != expected, f"{table}: a text does not match its digest")
    refuse_if(len(pack["vectors"]) != len(texts), f"{where}: {len(pack['vectors'])} rows for {len(texts)} texts")
    refuse_if([key.tobytes().hex() for key in pack["text_keys"]] != expected, f"{where}: vectors belong to other texts")
    check_lengths(pack["vectors"], where)
