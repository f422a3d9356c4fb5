"""The checks of a group of written texts: its rows and vectors must belong to its nodes and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.core.checks import check_lengths, columns, refuse_if
from tasks.core.groups import bits_of
from tasks.core.shards import id_hashes
from tasks.core.stage import Part
from tasks.stages.embed.embed import row_key

__all__ = ["check_nodes", "check_text_vectors", "check_written"]


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
    """Compare a group's texts with their nodes and vectors; returns the number of texts.

    table, made_of, vectors: the inputs; `made_of` has at least one row for each node, ordered by the node ids in the
    column `key`. layer: the column of the nodes' layer. letters: the first letter of group labels, by layer. embedded:
    makes the embedded text from a row's `columns_embedded`.
    """
    of = columns(part, made_of, key)[key].unique(maintain_order=True).to_list()
    return check_nodes(
        part,
        table,
        of,
        list(map(bits_of, of)),
        key=key,
        layer=layer,
        letters=letters,
        made_of=made_of,
        vectors=vectors,
        columns_embedded=columns_embedded,
        embedded=embedded,
    )


def check_nodes(
    part: Part[Any],
    table: str,
    of: Sequence[str],
    paths: Sequence[str],
    *,
    key: str,
    layer: str,
    letters: str,
    made_of: str,
    vectors: str,
    columns_embedded: tuple[str, ...] = ("text",),
    embedded: Callable[..., str] = str,
) -> dict[str, int]:
    """Compare a group's texts with its nodes and vectors, as `check_written` does; returns the number of texts.

    of, paths: the ids of the nodes, and the bits of their paths in the trie of groups.
    """
    label = part.job.shard
    rows = columns(part, table, key, layer, *columns_embedded, "digest")
    nodes, where = rows[key].to_list(), f"{table}/{label}"
    refuse_if(nodes != list(of), f"{where}: not one row for each of {made_of}, in the order of their ids")
    refuse_if(bool((rows[layer] != letters.index(label[0]) + 1).any()), f"{where}: nodes of another layer")
    strange = [node for node, path in zip(of, paths, strict=True) if not path.startswith(label[1:])]
    refuse_if(bool(strange), f"{where}: {strange[:1]} belongs to another group")
    texts = [embedded(*row) for row in rows.select(*columns_embedded).iter_rows()]
    pack = check_text_vectors(part, vectors, texts, table, rows["digest"].to_list())
    refuse_if(not np.array_equal(pack["keys"], id_hashes(nodes)), f"{vectors}/{label}: vectors of other nodes")
    return {table: len(nodes)}


def check_text_vectors(
    part: Part[Any], vectors: str, texts: Sequence[str], table: str = "", digests: Sequence[str] | None = None
) -> Mapping[str, NDArray[Any]]:
    """Compare some texts with the digests in a table, and with their vectors; returns the pack."""
    label, pack = part.job.shard, part.pack(vectors)
    found = [row_key(text).hex() for text in texts]
    refuse_if(digests is not None and digests != found, f"{table}/{label}: a text is not that of its digest")
    where = f"{vectors}/{label}"
    refuse_if(len(pack["vectors"]) != len(texts), f"{where}: {len(pack['vectors'])} rows for {len(texts)} texts")
    refuse_if([key.tobytes().hex() for key in pack["text_keys"]] != found, f"{where}: vectors of other texts")
    check_lengths(pack["vectors"], where)
    return pack
