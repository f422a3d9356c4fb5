"""The checks of zoom_graph: vectors match their documents, and links join existing rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.zoom_graph.schema import DOCUMENT_VECTORS, LINKS
from indexmill.families.zoom_graph.similar import NamedRows, UnknownName, pairs_of
from indexmill.retrieve.shared_schema import NAMES
from schemas.tables import DOCUMENTS
from tasks.core.checks import Check, CheckError, check_pack, columns, refuse_if
from tasks.core.shards import id_hashes
from tasks.core.stage import Input, Part


def _check_vectors(part: Part[Any], counts: Mapping[str, int]) -> None:
    ids = columns(part, "documents", "document_id")["document_id"].to_list()
    pack = part.pack("document_vectors")
    where = f"document_vectors/{part.job.shard}"
    check_pack(DOCUMENT_VECTORS, pack, where, {"own documents": len(ids)})
    names = id_hashes(ids)[:, :8].copy().view(">u8").reshape(-1)
    refuse_if(not np.array_equal(pack["keys"], names), f"{where}: the vectors belong to other documents")


def _check_links(part: Part[Any], counts: Mapping[str, int]) -> None:
    for name, source, keys in (
        ("document_links", "document_vectors", "keys"),
        ("entity_links", "names", "entity_keys"),
    ):
        rows = [np.empty(0, dtype=np.uint64), *(pack[keys] for pack in part.packs(source))]
        check_links(name, part.packs(name), np.concatenate(rows))


def check_links(kind: str, blocks: Iterable[Mapping[str, NDArray[Any]]], names: NDArray[np.uint64]) -> None:
    """Raise CheckError if blocks break their schema, link rows with other names, or overlap."""
    rows = NamedRows(names)
    seen = np.zeros(len(names), dtype=bool)
    for block in blocks:
        check_pack(LINKS, block, kind, {})
        try:
            owners = np.unique(pairs_of(block, rows).low)
        except UnknownName as error:
            raise CheckError(f"{kind}: {error}; nothing was published") from error
        refuse_if(bool(seen[owners].any()), f"{kind}: the pairs of a row are in two blocks")
        seen[owners] = True


CHECKS = (
    Check((Input("document_vectors", DOCUMENT_VECTORS), Input("documents", DOCUMENTS)), _check_vectors),
    Check(
        (
            Input("document_links", LINKS, each=True),
            Input("document_vectors", DOCUMENT_VECTORS, each=True),
            Input("entity_links", LINKS, each=True),
            Input("names", NAMES, each=True),
        ),
        _check_links,
        whole=True,
    ),
)
