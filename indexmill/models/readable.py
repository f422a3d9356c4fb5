"""The JSON value in a language model's answer, which must be complete.

The reasons of a `BadAnswer` are fixed texts: they contain nothing of an answer, and so nothing of the corpus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from indexmill.models.llm import Completion
from indexmill.store.canonical import strict_json

_OPENING = re.compile(r"^[ \t]*+```[ \t]*+(?:json|JSON)?+[ \t]*+\n", re.MULTILINE)
_CLOSING = re.compile(r"```[ \t]*+$", re.MULTILINE)
_ENDINGS = {"content_filter": "filtered", "refusal": "declined"}

_ADVICE = {
    "cut-off": "it is longer than allowed and was cut off; be much briefer.",
    "endless-space": "it goes on in white space; write the JSON object without line breaks, and end.",
    "not-json": "it is not one JSON object by itself.",
}


class BadAnswer(Exception):
    """An unusable answer: `reason` is a word, perhaps with a colon and details."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    @property
    def is_final(self) -> bool:
        """True if a filter or the model refused the text: a retry would be refused, and billed, again."""
        return self.reason in _ENDINGS.values()

    @property
    def is_cut(self) -> bool:
        """True if the answer reached the limit of its length: the same model would write the same again."""
        return self.reason in ("cut-off", "endless-space")

    @property
    def advice(self) -> str:
        """The advice to the model for the repair attempt."""
        return _ADVICE.get(self.reason, f"{self.reason}.")


def value_of(completion: Completion) -> Any:
    """Parse the JSON value of an answer, which may be in one Markdown fence, with words around it.

    Raises BadAnswer if it is incomplete or not JSON; the reasons: `cut-off`, `endless-space`, `filtered`, `declined`,
    `unfinished`, `empty`, `not-json`.
    """
    text, ending = completion.text, completion.finish_reason
    if ending == "length":
        spaces = len(text) - len("".join(text.split()))
        raise BadAnswer("endless-space" if spaces > len(text) / 2 else "cut-off")
    if ending != "stop":
        raise BadAnswer(_ENDINGS.get(ending, "unfinished"))
    text = text.removeprefix("\ufeff").strip()
    if not text:
        raise BadAnswer("empty")
    try:
        return strict_json(text)
    except ValueError:
        return _fenced(text)


def _fenced(text: str) -> Any:
    """Parse the JSON value in the only fence of a text; raises BadAnswer unless there is exactly one."""
    fenced = list(_fences(text))
    if len(fenced) != 1:
        raise BadAnswer("not-json")
    try:
        return strict_json(fenced[0])
    except ValueError:
        raise BadAnswer("not-json") from None


def _fences(text: str) -> Iterator[str]:
    at = 0
    while (opening := _OPENING.search(text, at)) and (closing := _CLOSING.search(text, opening.end())):
        yield text[opening.end() : closing.start()].rstrip(" \t").removesuffix("\n")
        at = closing.end()
