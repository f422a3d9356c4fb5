"""The documents of a snapshot that some principals may read: see ``indexmill.retrieve.rights``."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.metadata import metadata_of
from indexmill.retrieve.rights import Access, groups_of
from indexmill.retrieve.table_rows import TableRows

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

KEPT_READERS = 64
"""The number of sets of principals whose document masks (one byte per document) are cached per snapshot."""

Readable = npt.NDArray[np.bool_]


class DocumentRights:
    """Who may read which documents of one snapshot. Thread-safe; reads the groups of all documents when created."""

    def __init__(self, artifacts: Artifacts, access: Access) -> None:
        documents = TableRows(artifacts, "documents", [])
        kinds: dict[frozenset[str] | None, int] = {}
        of_shards = [np.empty(0, dtype=np.int64)]
        for number, artifact in enumerate(documents.tables):
            texts = documents.column(number, "metadata").dictionary_encode()
            codes = [
                kinds.setdefault(_groups(text, access, artifact.name), len(kinds))
                for text in texts.dictionary.to_pylist()
            ]
            of_shards.append(np.array(codes, dtype=np.int64)[texts.indices.to_numpy()])
        self._groups = list(kinds)
        self._kinds = np.concatenate(of_shards)
        self.documents = lru_cache(maxsize=KEPT_READERS)(self._documents)
        """Returns a mask of the documents that some principals may read: ``(n_documents,) bool``, read-only."""

    def _documents(self, principals: frozenset[str]) -> Readable:
        by_kind = [groups is None or not principals.isdisjoint(groups) for groups in self._groups]
        readable: Readable = np.array(by_kind, dtype=np.bool_)[self._kinds]
        readable.setflags(write=False)
        return readable


def _groups(metadata: str, access: Access, where: str) -> frozenset[str] | None:
    """Return a document's groups from its metadata: None for everyone, empty if they are unclear."""
    try:
        return groups_of(metadata_of(metadata, where), access)
    except ValueError:
        return frozenset()
