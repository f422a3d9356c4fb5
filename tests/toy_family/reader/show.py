"""List the most frequent first words of a snapshot, for ``indexmill show --incipits``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def outline(artifacts: Artifacts, depth: int, width: int) -> dict[str, Any]:
    """Return the first words of passages, the most frequent first."""
    texts = Counter(text.split()[0] for text in artifacts.table("incipit_texts")["incipit"].to_pylist())
    return {"version": artifacts.version, "incipits": texts.most_common(width)}


def drawing(listing: dict[str, Any], unnumbered: str) -> str:
    """Format an outline as text."""
    return "\n".join(f"{count:>5}  {word}" for word, count in listing["incipits"])
