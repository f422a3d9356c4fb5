"""Answers as the rules recogniser would give them: deterministic, grounded, and without a model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from indexmill.models.recogniser import RulesRecogniser

_TEXT = re.compile(r"<text-\d+ [0-9a-f]{16}>\n(.*?)\n</text-\d+ [0-9a-f]{16}>", re.DOTALL)
_KINDS = ("title", "name", "part", "work", "code")


def texts_of(chat: Mapping[str, Any]) -> list[str]:
    """The texts in the content of a chat completion."""
    return _TEXT.findall(chat["messages"][1]["content"])


def rules_answer(chat: Mapping[str, Any]) -> str:
    """The names that the rules find in the texts, each in the form in which it stands there."""
    texts = texts_of(chat)
    title = texts[0] if len(texts) > 1 else ""
    forms = dict.fromkeys(
        (title if one.field == "title" else texts[-1])[one.start : one.end]
        for one in RulesRecogniser().recognise(title, texts[-1])
        if one.kind in _KINDS
    )
    return json.dumps({"entities": [{"entity": form, "texts": [form]} for form in forms]}, ensure_ascii=False)
