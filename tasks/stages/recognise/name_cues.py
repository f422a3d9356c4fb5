"""The cues of names in a language: words that stand before or after names, or end them (`name_cues.yaml`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml


@dataclass(frozen=True, slots=True)
class NameCues:
    """The cues of a language, or of Chinese characters (`han`).

    before: words that precede a name and belong to it. ranks: words that precede the name of a person and do not belong
    to it. after: words that follow a name and belong to it. titles: words that follow the name of a person and do not
    belong to it. joining: words that connect two words of a name. separators: words between names. determiners: words
    that precede a noun. endings: how names end; in German, how nouns end that are no names. last: endings of names at
    the end of a clause. prefixes, particles: syllables that are written together with the next or the previous word.
    sounds: characters that write foreign names. surnames: the first characters of persons' names.
    """

    before: frozenset[str] = frozenset()
    ranks: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()
    titles: frozenset[str] = frozenset()
    joining: frozenset[str] = frozenset()
    separators: frozenset[str] = frozenset()
    determiners: frozenset[str] = frozenset()
    last: frozenset[str] = frozenset()
    sounds: frozenset[str] = frozenset()
    surnames: frozenset[str] = frozenset()
    endings: frozenset[str] = frozenset()
    prefixes: frozenset[str] = frozenset()
    particles: frozenset[str] = frozenset()


@cache
def cues_of(language: str) -> NameCues:
    """Return the cues of a language (a two-letter code, or ``han``); none if the table lacks it."""
    table = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    return NameCues(**{name: frozenset(words.split()) for name, words in table.get(language, {}).items()})
