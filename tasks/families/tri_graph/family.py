"""The family tri_graph: its graph is the output of the shared stage `mention_links`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.core.builder_family import BuilderFamily


def counts(mention_links: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, int]:
    """Return the sizes of the graph, as the manifest states them."""
    keys = np.concatenate([np.empty(0, np.uint64), *(pack["entity_keys"] for pack in mention_links)])
    return {
        "entities": len(np.unique(keys)),
        "sentences": sum(len(pack["mentions.indptr"]) - 1 for pack in mention_links),
        "passages": sum(len(pack["contents.indptr"]) - 1 for pack in mention_links),
        "mention_links": sum(len(pack["mentions.indices"]) for pack in mention_links),
        "content_links": sum(len(pack["contents.indices"]) for pack in mention_links),
    }


FAMILY = BuilderFamily("tri_graph", steps=(), artifact="", counts=counts, shared=("mention_links",))
