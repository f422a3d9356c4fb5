"""Extractions as a model would answer them: deterministic, and grounded in the texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

_NAME = re.compile(r"\b[A-Z][a-z]+(?: (?:of )?[A-Z][a-z]+)*")


def extract_answer(texts: Sequence[str]) -> dict[str, Any]:
    """What fits the task `extract`: the names in the last text, its sentences, and names that follow another."""
    sentences = [one.strip() for one in re.split(r"(?<=\.)\s+", texts[-1]) if one.strip()]
    names = list(dict.fromkeys(_NAME.findall(texts[-1])))
    return {
        "entities": [{"name": name, "type": "thing", "description": f"{name} is told of."} for name in names],
        "units": [
            {
                "text": f"It is said: {sentence}",
                "entities": (own := list(dict.fromkeys(_NAME.findall(sentence)))),
                "relations": [
                    {
                        "source": source,
                        "relation": "stands before",
                        "target": target,
                        "type": "order",
                        "description": f"{source} stands before {target}.",
                    }
                    for source, target in pairwise(own)
                ],
            }
            for sentence in sentences
        ],
    }
