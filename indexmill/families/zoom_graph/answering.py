"""The answer of zoom_graph: the model reads the sentences that the second stage keeps (ZoomRAG, section 3.3).

They stand in their order, and "[...]" where something between them is left out. A passage of which no sentences are
told, since its document was not zoomed into, is read whole. Hits stay whole passages, which is what is cited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from indexmill.answer.base import context_tokens
from indexmill.answer.one_prompt import OnePrompt, shown
from indexmill.hits import Hit
from indexmill.retrieve.base import override_parameters

__all__ = ["GAP", "KeptSentences", "ReadSettings", "kept_text"]

GAP = "[...]"
"""What stands for the sentences that are left out."""


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """read: what the model reads of a passage: the sentences that are ``kept``, or the whole ``passage``."""

    read: Literal["kept", "passage"] = "kept"


class KeptSentences(OnePrompt):
    """One prompt with the kept sentences of all hits."""

    def __init__(self, settings: Mapping[str, object] | None = None, prompts: Path | None = None) -> None:
        super().__init__(None, prompts)
        self._setting = override_parameters(ReadSettings(), settings or {}, "answering=")

    @property
    def uses_explanations(self) -> bool:
        """See ``Answering``: they tell which sentences are kept."""
        return self._setting.read == "kept"

    def tokens(self, hit: Hit) -> int:
        """See ``Answering``: of the passage's tokens the share that its kept sentences have of its bytes."""
        whole = len(hit.text.encode("utf-8"))
        return -(-context_tokens(hit) * len(self._text(hit).encode("utf-8")) // whole) if whole else 0

    def shown(self, hit: Hit) -> str:
        """See ``OnePrompt``."""
        return shown(replace(hit, text=self._text(hit)))

    def _text(self, hit: Hit) -> str:
        return kept_text(hit) if self._setting.read == "kept" else hit.text


def kept_text(hit: Hit) -> str:
    """The sentences of a passage that its explanation tells, in their order; the whole text where it tells none."""
    end = 0
    pieces: list[str] = []
    for said in (hit.explanation or {}).get("sentences", ()):
        start = hit.text.find(said["text"], end)
        if start < 0:
            return hit.text  # of another text
        between = hit.text[end:start]
        pieces.append(between if not between.strip() else f"{' ' if pieces else ''}{GAP} ")
        pieces.append(said["text"])
        end = start + len(said["text"])
    if not pieces:
        return hit.text
    if hit.text[end:].strip():
        pieces.append(f" {GAP}")
    kept = "".join(pieces).strip()
    return kept if len(kept) < len(hit.text) else hit.text  # a gap shorter than its mark saves nothing
