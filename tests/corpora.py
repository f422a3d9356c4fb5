"""Small corpora for tests: invented, deterministic, and cheap to build an index of."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path

Documents = dict[str, tuple[str, str]]
"""Title and text by document id."""

_PEOPLE = ("Ada Marl", "Bruno of Vell", "Countess of Orrin", "Dario Penhale", "Esme Quill", "Fenna Rook", "Goran Stave")
_PLACES = ("Vell", "Orrin Bay", "Port Lassen", "Mount Tarrow", "the River Ane", "Quillon")
_VERBS = ("built", "painted", "described", "visited", "left", "ruled", "surveyed")


def documents(count: int, seed: int = 0, words: int = 60) -> Documents:
    """So many documents of about `words` words that mention each other's people and places."""
    made: Documents = {}
    for number in range(count):
        chance = random.Random(f"{seed} {number}")  # noqa: S311 - test data
        sentences = []
        while sum(len(sentence.split()) for sentence in sentences) < words:
            person, other = chance.sample(_PEOPLE, 2)
            place = chance.choice(_PLACES)
            year = chance.randrange(1700, 1999)
            sentences.append(f"{person} {chance.choice(_VERBS)} the bridge of {place} in {year} with {other}.")
        made[f"doc-{number:04d}"] = (f"{chance.choice(_PEOPLE)} ({number})", " ".join(sentences))
    return made


def told_of(count: int) -> Documents:
    """Documents that share some names, each with two names of its own."""
    rows: Documents = {}
    for number, (name, (title, text)) in enumerate(documents(count).items()):
        word = "".join(chr(ord("a") + int(digit)) for digit in f"{number:03d}")
        rows[name] = title, f"{text} Quorra Vex{word} met Fenna Rook at Krait{word} Hall. Krait{word} Hall is old."
    return rows


def write_corpus(path: Path, rows: Mapping[str, tuple[str, str]] | Iterable[tuple[str, tuple[str, str]]]) -> Path:
    """Write documents as JSON Lines, in the order given; returns the path."""
    pairs = rows.items() if isinstance(rows, Mapping) else rows
    with path.open("w", encoding="utf-8") as file:
        for identity, (title, text) in pairs:
            file.write(json.dumps({"id": identity, "title": title, "text": text}, ensure_ascii=False) + "\n")
    return path
