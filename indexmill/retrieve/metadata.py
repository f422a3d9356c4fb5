"""The metadata of documents, as their table holds it."""

from __future__ import annotations

import json
from typing import Any

from indexmill.errors import CorruptBlob


def metadata_of(text: str, where: object) -> dict[str, Any]:
    """The metadata of a document. Raises CorruptBlob, which names ``where``, unless it is a JSON object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise CorruptBlob(f"{where}: the metadata of a document is {text!r:.80}; expected a JSON object")
    return found
