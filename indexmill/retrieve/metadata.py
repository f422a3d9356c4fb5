"""The metadata of documents, as stored in their table."""

from __future__ import annotations

import json
from typing import Any

from indexmill.errors import CorruptBlob


def metadata_of(text: str, where: object) -> dict[str, Any]:
    """Parse the metadata of a document. Raises CorruptBlob, which names ``where``, unless it is a JSON object."""
    try:
        metadata = json.loads(text)
    except (ValueError, RecursionError):
        metadata = None
    if not isinstance(metadata, dict):
        raise CorruptBlob(f"{where}: the metadata of a document is {text!r:.80}; expected a JSON object")
    return metadata
