"""Canonical names: the keys that all mentions of an entity share.

LinearRAG aligns passages through shared entities (section 2.3), so two surface forms of one name must give one key.
``canonical_name`` folds variants of writing that do not change the meaning:

- compatibility forms (NFKC), case, accents of Latin, Greek and Cyrillic letters (``Bråk`` = ``Brak``, and Turkish
  ``Işık`` = ``işık``), and the vowel points of Hebrew and Arabic;
- punctuation, with the spaces that tokenised corpora put around it (``Limburg- Styrum`` = ``Limburg-Styrum``), but
  ``C++`` and ``C#`` differ from ``C``;
- possessives (``Lothair II's`` = ``Lothair II``) and a leading ``the`` (``The Beatles`` = ``Beatles``);
- dotted initials and acronyms (``J. R. R. Tolkien`` = ``J.R.R. Tolkien``, ``W.A.S.P.`` = ``WASP``);
- the order of a date's parts (``March 20, 1890`` = ``20 March 1890``).

A qualifier in parentheses, as in titles, keeps its words here: the recogniser yields titles with and without it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from indexmill.text.normalise import ACCENTS, INVISIBLE, marks, normalise

MAX_NAME_LENGTH = 200
"""The maximum length of a canonical name in characters; a longer string is text, not a name, and has no key."""

_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"

_QUOTES = re.compile("[\u2018\u2019\u201b\u02bc\u0060\u00b4\u2032]")
_POSSESSIVE = re.compile(r"(?:'s)+(?!\w)")
_DOTTED = re.compile(r"(?<!\w)[^\W\d_](?:\.[ ]?[^\W\d_](?!\w))+\.?")
_KEEP_SIGNS = re.compile(r"(?<=[^\W_])(?:\+{2}|#)(?![\w+#])")
_MONTH_FIRST = re.compile(rf"({_MONTHS}) (\d{{1,2}})(?: (\d{{3,4}}))?")

# Private-use letters, which no name contains; they replace the two kept signs while other punctuation is removed.
_PLUS_PLUS, _SHARP = "\ue000", "\ue001"


def canonical_name(surface: str) -> str:
    """Return the canonical form of a surface form, or the empty string if no name remains.

    Idempotent: ``canonical_name(canonical_name(s)) == canonical_name(s)``. Words are separated by single spaces.
    """
    if len(surface) > 4 * MAX_NAME_LENGTH:
        return ""
    name = _fold(surface)
    while name.startswith("the "):
        name = name[4:]
    if name[-1:].isdigit():
        date = _MONTH_FIRST.fullmatch(name)
        if date:
            name = " ".join(part for part in (date[2], date[1], date[3]) if part)
    return name if len(name) <= MAX_NAME_LENGTH else ""


def canonical_words(text: str) -> list[str]:
    """Return the words of a text of any length, with articles, folded as ``canonical_name`` folds them."""
    return _fold(text).split()


def entity_id(name: str) -> str:
    """Return the id of the entity with this canonical name: 32 hexadecimal characters of SHA-256."""
    return _digests([name]).hex()[:32]


def _digests(names: Sequence[str]) -> bytes:
    """Return the concatenated SHA-256 digests of names, 32 bytes each."""
    sha256 = hashlib.sha256
    return b"".join([sha256(b"entity\0" + name.encode("utf-8", "surrogatepass")).digest() for name in names])


class NameIndex:
    """Finds entities by canonical name in a table ordered by entity id, with eight bytes per entity.

    keys: ``(n_entities,) uint64``, the first 16 hexadecimal digits of each entity id, ascending; may be memory-mapped.
    A lookup is a binary search, so that opening a graph of millions of entities builds no index.
    """

    def __init__(self, keys: npt.NDArray[np.uint64]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    @staticmethod
    def keys(ids: Sequence[str]) -> npt.NDArray[np.uint64]:
        """Return the keys of entity ids, in their order."""
        return np.array([int(identity[:16], 16) for identity in ids], dtype=np.uint64)

    def find(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the rows ``(n_names,)`` of canonical names; -1 if no entity has the name."""
        if not len(self._keys) or not names:
            return np.full(len(names), -1, dtype=np.int64)
        sought = np.frombuffer(_digests(names), dtype=">u8")[::4].astype(np.uint64)
        order = sought.argsort()  # a search for many keys is faster in sorted order
        sought = sought[order]
        at = np.minimum(self._keys.searchsorted(sought), len(self._keys) - 1)
        rows = np.empty(len(sought), dtype=np.int64)
        rows[order] = np.where(self._keys[at] == sought, at, -1)
        return rows


def _fold(text: str) -> str:
    is_ascii = text.isascii()
    punctuation = _punctuation("" if is_ascii else marks())
    if is_ascii:
        name = text.lower().replace("`", "'")
    else:
        name = normalise("NFKD", INVISIBLE.sub("", text)).casefold()
        name = ACCENTS.sub("", normalise("NFKD", name)).replace("\N{LATIN SMALL LETTER DOTLESS I}", "i")
        name = normalise("NFKC", name)
        name = _QUOTES.sub("'", name).replace(_PLUS_PLUS, " ").replace(_SHARP, " ")
    if "." in name:
        name = _DOTTED.sub(_join_letters, name)
    if "'" in name:
        name = _POSSESSIVE.sub("", name).replace("'", "")
    if "+" in name or "#" in name:
        name = _KEEP_SIGNS.sub(_placeholder, name)
        name = "".join(c if c in (_PLUS_PLUS, _SHARP) else " " if punctuation.fullmatch(c) else c for c in name)
        return " ".join(name.split()).replace(_PLUS_PLUS, "++").replace(_SHARP, "#")
    return punctuation.sub(" ", name).strip()


@lru_cache(maxsize=2)
def _punctuation(of_words: str) -> re.Pattern[str]:
    """Compile the pattern of characters that are not part of a word. of_words: marks that are."""
    return re.compile(rf"(?:(?![{of_words}])[\W_])+" if of_words else r"[\W_]+")


def _join_letters(match: re.Match[str]) -> str:
    return match[0].replace(".", "").replace(" ", "") + " "


def _placeholder(match: re.Match[str]) -> str:
    return _PLUS_PLUS if match[0] == "++" else _SHARP
