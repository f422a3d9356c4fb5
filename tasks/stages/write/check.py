"""What `check` refuses of a group of written texts: rows, and vectors, of other nodes or other texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tasks.core.checks import check_lengths, columns, refuse_if
from tasks.core.groups import bits_of
from tasks.core.shards import id_hashes
from tasks.core.stage import Part
from tasks.stages.embed.embed import row_key

__all__ = ["check_written"]


def check_written(
    part: Part[Any],
    table: str,
    *,
    key: str,
    layer: str,
    letters: str,
    made_of: str,
    vectors: str,
    columns_embedded: tuple[str, ...] = ("text",),
    embedded: Callable[..., str] = str,
) -> dict[str, int]:
    """Hold a group's texts against what they are made of, and their vectors; returns how many they are.

    table, made_of, vectors: the inputs; `made_of` has a row or more for each node, in the order of their ids, which are
    in the column `key`. layer: the column of their layer, letters: of the labels of each layer's groups. embedded: of
    the columns_embedded of a row, what is embedded.
    """
    label = part.job.shard
    rows = columns(part, table, key, layer, *columns_embedded, "digest")
    nodes, where = rows[key].to_list(), f"{table}/{label}"
    of = columns(part, made_of, key)[key].unique(maintain_order=True).to_list()
    refuse_if(nodes != of, f"{where}: not one row for each of {made_of}, in the order of their ids")
    refuse_if(bool((rows[layer] != letters.index(label[0]) + 1).any()), f"{where}: nodes of another layer")
    strange = [node for node in nodes if not bits_of(node).startswith(label[1:])]
    refuse_if(bool(strange), f"{where}: {strange[:1]} belongs to another group")
    digests = [row_key(embedded(*row)).hex() for row in rows.select(*columns_embedded).iter_rows()]
    refuse_if(digests != rows["digest"].to_list(), f"{where}: a text is not that of its digest")
    pack, where = part.pack(vectors), f"{vectors}/{label}"
    refuse_if(len(pack["vectors"]) != len(nodes), f"{where}: {len(pack['vectors'])} rows for {len(nodes)} nodes")
    refuse_if(not np.array_equal(pack["keys"], id_hashes(nodes)), f"{where}: vectors of other nodes")
    own = [one.tobytes().hex() for one in pack["text_keys"]]
    refuse_if(own != digests, f"{where}: vectors of other texts")
    check_lengths(pack["vectors"], where)
    return {table: len(nodes)}
