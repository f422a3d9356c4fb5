"""The similarity of two canonical names by their letters, and the marks that distinguish similar names.

The names in a series are similar but never the same. `marks` are a name's numbers in any notation, its single letters,
months and days, and words such as "north" or "junior"; names with different marks are different entities.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_TILE = 65_536  # pairs of names compared at once

_ROMAN = re.compile(r"(?=[mdclxvi])m{0,3}(?:cm|cd|d?c{0,3})(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})")
_ROMAN_DIGITS = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}
_DIGITS = re.compile(r"\d+")

_CARDINALS = (  # noqa: SIM905
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
).split()
_ORDINALS = (  # noqa: SIM905
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth"
).split()
_NUMBERS = {
    word: str(number) for words, first in ((_CARDINALS, 0), (_ORDINALS, 1)) for number, word in enumerate(words, first)
}
_MONTHS = tuple(
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
_SHORT_MONTHS = {month[:3]: month for month in _MONTHS} | {"sept": "september"}
_TELLING = frozenset(
    " ".join(
        (
            *_MONTHS,
            "monday tuesday wednesday thursday friday saturday sunday",
            "north south east west northern southern eastern western northeast northwest southeast southwest",
            "northeastern northwestern southeastern southwestern upper lower inner outer left right front back",
            "old new early late ancient modern former greater lesser major minor big little",
            "senior junior sr jr elder younger",
            "male female man woman men women mens womens boy girl boys girls his her he she mr mrs ms",
            "king queen prince princess duke duchess count countess emperor empress lord lady baron baroness",
            "father mother son daughter brother sister husband wife uncle aunt nephew niece actor actress hero heroine",
            "thirty forty fifty sixty seventy eighty ninety hundred thousand million billion",
            "spring summer autumn fall winter morning evening day night before after pre post anti non not without",
            "alpha beta gamma delta epsilon omega",
        )
    ).split()
)


def plain_name(name: str) -> str:
    """Write the numbers of a canonical name as digits: Roman numerals, number words, and digits of other scripts."""
    return " ".join(_plain_word(word) for word in name.split())


def _plain_word(word: str) -> str:
    if word in _NUMBERS:
        return _NUMBERS[word]
    if _ROMAN.fullmatch(word):
        values = [_ROMAN_DIGITS[letter] for letter in word]
        following = [*values[1:], 0]
        return str(sum(-value if value < after else value for value, after in zip(values, following, strict=True)))
    return word


def marks(plain: str) -> tuple[str, ...]:
    """Return the marks of a name (`plain_name`); names with different marks never match.

    Marks are runs of digits without leading zeros, other number signs, words such as "north", and single letters.
    """
    ordered = [str(int(run)) for run in _DIGITS.findall(plain)]
    ordered += [sign for sign in plain if not sign.isdecimal() and unicodedata.numeric(sign, None) is not None]
    words = [_SHORT_MONTHS.get(word, word) if ordered else word for word in plain.split()]
    telling = sorted(word for word in words if word in _TELLING)
    letters = sorted(word for word in words if len(word) == 1 and word.isalpha() and word.isascii())
    return (*ordered, "", *telling, "", *letters)


def likenesses(pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
    """Return the similarity of each pair of names, (n,) float32 from 0 to 1: 1 - edits / letters of the longer name.

    An edit inserts, deletes or replaces a letter (Levenshtein, 1966). Words in both names, counted with repetitions,
    are left out wherever they are: an additional or different word makes a different name, however long both are.
    Spaces are not letters.
    """
    tiles = [np.empty(0, dtype=np.float32)]
    for first in range(0, len(pairs), _TILE):
        tile = pairs[first : first + _TILE]
        tiles.append(_likenesses([(_unshared(name, near), _unshared(near, name)) for name, near in tile]))
    return np.concatenate(tiles)


def _unshared(name: str, reference: str) -> str:
    """Return the joined words of `name` that `reference` lacks."""
    shared = Counter(reference.split())
    unshared = []
    for word in name.split():
        if shared[word]:
            shared[word] -= 1
        else:
            unshared.append(word)
    return "".join(unshared)


def _likenesses(pairs: Sequence[Sequence[str]]) -> NDArray[np.float32]:
    ones, twos = (_letters([pair[side] for pair in pairs]) for side in (0, 1))
    lengths = [np.array([len(pair[side]) for pair in pairs]) for side in (0, 1)]
    # One row of the table of prefixes at a time, for all pairs at once; insertions are a running minimum along the row.
    column = np.arange(twos.shape[1] + 1, dtype=np.int32)
    row = np.broadcast_to(column, (len(pairs), len(column))).copy()
    edits = np.where(lengths[0] == 0, lengths[1], 0)
    for number in range(ones.shape[1]):
        replaced = row[:, :-1] + (twos != ones[:, number, None])
        row[:, 1:] = np.minimum(row[:, 1:] + 1, replaced)
        row[:, 0] = number + 1
        row = np.minimum.accumulate(row - column, axis=1) + column
        ended = np.flatnonzero(lengths[0] == number + 1)
        edits[ended] = row[ended, lengths[1][ended]]
    longer = np.maximum(np.maximum(*lengths), 1)
    likeness: NDArray[np.float32] = (1 - edits / longer).astype(np.float32)
    return likeness


def _letters(names: Sequence[str]) -> NDArray[np.uint32]:
    """Return the letters of some names, (n, longest) uint32, padded with zeros."""
    longest = max(map(len, names), default=0)
    joined = "".join(name.ljust(longest, "\0") for name in names)
    return np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).reshape(len(names), longest)
