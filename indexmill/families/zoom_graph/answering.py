"""The answer of zoom_graph: the model reads the sentences that the second stage keeps (ZoomRAG, section 3.3).

Sentences keep their order, with "[...]" for gaps. A passage whose document was not zoomed into has no kept sentences
and is read whole. Hits remain whole passages, and the answer cites them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from indexmill.answer.answer_types import context_tokens
from indexmill.answer.one_prompt import OnePrompt, shown
from indexmill.hits import Hit
from indexmill.retrieve.retrieval_method import override_parameters

GAP = "[...]"
"""The mark for omitted sentences."""


@dataclass(frozen=True, slots=True)
class ZoomAnswerSettings:
    """The settings of the answer. read: what the model reads of a hit: ``kept`` sentences or the whole ``passage``."""

    read: Literal["kept", "passage"] = "kept"


class KeptSentences(OnePrompt):
    """One prompt with the kept sentences of all hits."""

    def __init__(self, settings: Mapping[str, object] | None = None, prompts: Path | None = None) -> None:
        super().__init__(None, prompts)
        self._setting = override_parameters(ZoomAnswerSettings(), settings or {}, "answering=")

    @property
    def uses_explanations(self) -> bool:
        """See ``Answering``: explanations list the kept sentences."""
        return self._setting.read == "kept"

    def tokens(self, hit: Hit) -> int:
        """See ``Answering``: the passage's tokens, scaled by the kept sentences' share of its bytes."""
        whole = len(hit.text.encode("utf-8"))
        return -(-context_tokens(hit) * len(self._text(hit).encode("utf-8")) // whole) if whole else 0

    def shown(self, hit: Hit) -> str:
        """See ``OnePrompt``."""
        return shown(replace(hit, text=self._text(hit)))

    def _text(self, hit: Hit) -> str:
        return kept_text(hit) if self._setting.read == "kept" else hit.text


def kept_text(hit: Hit) -> str:
    """Return the kept sentences of a passage, from its explanation, in order; the whole text if there are none."""
    end = 0
    pieces: list[str] = []
    for sentence in (hit.explanation or {}).get("sentences", ()):
        start = hit.text.find(sentence["text"], end)
        if start < 0:
            return hit.text  # the explanation is of another text
        between = hit.text[end:start]
        pieces.append(between if not between.strip() else f"{' ' if pieces else ''}{GAP} ")
        pieces.append(sentence["text"])
        end = start + len(sentence["text"])
    if not pieces:
        return hit.text
    if hit.text[end:].strip():
        pieces.append(f" {GAP}")
    text = "".join(pieces).strip()
    return text if len(text) < len(hit.text) else hit.text  # a gap shorter than its mark saves nothing
