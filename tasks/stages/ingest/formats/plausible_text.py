"""Detects text that is a cipher: fonts whose map to Unicode is wrong, or scrambled against copying.

Language detectors name a language for any text. Two traits of languages in Latin letters are enough: a text has many of
their shortest words or, as tables and Finnish do, of their most frequent pairs of letters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import islice, pairwise

_LEAST_WORDS = 60
_LEAST_SHORT = 0.08  # 0.2 to 0.45 in most languages; in a cipher, some words of two letters happen to be in the list
_MOST_WORDS = 5_000
_LEAST_PAIRS = 0.25  # 0.28 in Welsh to 0.6; in a cipher, more than 0.25 is rare
_LEAST_LONG = 0.1  # a list of symbols or codes has fewer
_LONG = 5
_WORD = re.compile(r"\b[^\W\d_]{2,20}\b")
_SHORT_WORDS = frozenset(
    """
    the of and to in is for with on that are as by or be at an from this it not no if we can all
    de la le les et des en un une du pour dans que est sur au par ne pas ce il
    der die das und den von zu mit ist ein eine für auf dem im nicht als auch des sich werden
    el los las del por con para se una su al lo es más como di che per non sono della da dei nel
    do em um uma os não na com dos ao van het een voor niet op te zijn met aan
    nie się jest od po przez oraz och att det som på av är till ikke og til er med ja ei että on oli
    az és nem egy hogy ve bir bu için ile si cu nu din pe care je se na za su da li ve jako
    và của các là cho không yang dan untuk dengan ini ir ar kas un par ja ning ka
    """.split()  # noqa: SIM905
)

_PAIRS = frozenset(
    """
    er an en in de te ta re ar ra le la es st al ti at na ne on li ri ma ng el or nt me et da se is ni di ka as il si it
    nd ch ie to ro ha un ir pa sa ad no va ve lo ic ke ak am tr he ko
    """.split()  # noqa: SIM905
)


def is_plausible(texts: Iterable[str]) -> bool:
    """Return whether texts may be in a language; True if they have few words or hardly any long ones, as lists of codes
    do, or are not in Latin letters.
    """
    words = list(islice((word for text in texts for word in _WORD.findall(text.lower())), _MOST_WORDS))
    if len(words) < _LEAST_WORDS or sum(word in _SHORT_WORDS for word in words) >= _LEAST_SHORT * len(words):
        return True
    if sum(len(word) >= _LONG for word in words) < _LEAST_LONG * len(words):
        return True
    folded = ["".join(filter(str.isalpha, unicodedata.normalize("NFD", word))) for word in words]
    if sum("a" <= letter <= "z" for word in folded for letter in word) < 0.8 * sum(map(len, folded)):
        return True
    pairs = [first + second for word in folded for first, second in pairwise(word)]
    return sum(pair in _PAIRS for pair in pairs) >= _LEAST_PAIRS * len(pairs)
