"""The subjects of a text: the subject of each paragraph, from its first sentence.

"The Trail is a 1923 film ..." opens a paragraph about "The Trail", and the following sentences, which say "it" and "the
film", are about it, too. So if the title does not name the subject, a paragraph's subject serves as its title. All
results are pure functions of one document.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from indexmill.models.recogniser import Mention, names_nothing
from indexmill.text.canonical_names import canonical_name, canonical_words

_PARAGRAPH = re.compile(r"(?:\A|\n[ \t]*\n)\s*")
_ARTICLE = re.compile(r"[\s\"'“”‘’«»(\[*_#>`|-]*(?:(?:The|An?)\s+)?[\"'“‘«(\[*_`]*")
_SENTENCE = re.compile(r"[.!?][\"'”’)\]]*\s+(?=[^\Wa-z\d_])|\n")
_ASIDE = re.compile(r"\s*\([^()]{0,200}(?:\([^()]*\)[^()]{0,100})?\)")
_VERB = re.compile(  # after commas and spaces, or after an apposition: from the last of these commas to a further one
    r"(?:(?:\s*+,)*+\s*+|(?:\s*+,)++[^.;]{0,160}?,\s*+)"
    r"\b(?:is|was|are|were|has|had|may refer|can refer|refers?|will be|became|means)\b"
)
_PHRASE = re.compile(
    r"[^\s,;:()\"“”][^,;:()\n]{0,100}?(?=\s*[,(]|\s+(?:is|was|are|were|has|had|may|can|refers?|became|means)\b)"
)
_KNOWN_AS = re.compile(
    r"\b(?:known(?: \w+)? as|known by|called|nicknamed|born|née|alias|pseudonym|stage name|pen name|ring name"
    r"|abbreviated(?: as| to)?|or simply|formerly|aka|a\.k\.a\.),?(?: the)?[\s\"“'‘(]*$"
)
_NICKNAME = re.compile(r"\s*[\"“]\s*([^\"“”]{1,30}?)\s*[\"”]\s*")
_INITIAL = re.compile(r"[^\W\d_]\.")
_CAPITAL = re.compile(r"[^\Wa-z\d_]")
_WORDS = 10
_REFERRING = frozenset(
    "he she it they his her its their this these that those there here we you i".split()  # noqa: SIM905 - a list of words
)
_NAMED = frozenset(("name", "work", "code", "alias"))
_RANK = re.compile(
    r"(?:(?:Sir|Dame|Lord|Lady|Saint|St|Dr|Mr|Mrs|Ms|Prince|Princess|King|Queen|Count|Countess|Baron|Baroness|Duke"
    r"|Duchess|General|Colonel|Captain|Major|Lieutenant|Admiral|Professor|Rev|Reverend|Pope|Bishop|Archbishop|Venerable"
    r"|Blessed|President|Senator|Judge)\.?\s+)+"
)


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a text from ``start`` to the next subject: its names, each as written and canonical."""

    start: int
    names: tuple[tuple[str, str], ...]


class About(NamedTuple):
    """The subjects of a document. titled: whether the title names a subject. subjects: the text's, in order."""

    titled: bool
    subjects: tuple[Subject, ...]


def subjects_of(title: str, text: str, mentions: Sequence[Mention]) -> About:
    """Find the subjects of a document. mentions: the mentions in title and text, in any order.

    A title names the subject if the text mentions it: most words of the title occur in the text, or one of them occurs
    in a name in the text. "Report 12" names no subject; the subjects are then those of the paragraphs. If the title
    names the subject, the first paragraph's subject contributes other names.
    """
    in_text = sorted((m for m in mentions if m.field == "text" and m.kind in _NAMED), key=lambda m: (m.start, -m.end))
    subjects = _of_paragraphs(text, in_text)
    if not title or not subjects:
        return About(bool(title), tuple(subjects))
    words = {word for word in canonical_words(title) if not names_nothing(word)}
    if not _tells(words, text, in_text):
        return About(False, tuple(subjects))
    first = subjects[0]
    same = any(words.intersection(name.split()) for _, name in first.names)
    title_name = canonical_name(title)
    names = tuple(name for name in first.names if name[1] != title_name) if same else ()
    return About(True, (Subject(first.start, names),) if names else ())


def _tells(words: set[str], text: str, mentions: Sequence[Mention]) -> bool:
    """Return True if a text mentions the subject that these words name."""
    if 2 * len(words.intersection(canonical_words(text))) > len(words):
        return True
    letters = {word for word in words if not word.isdigit()}
    return any(not letters.isdisjoint(canonical_words(text[mention.start : mention.end])) for mention in mentions)


def _of_paragraphs(text: str, mentions: Sequence[Mention]) -> list[Subject]:
    """Return the subjects of a text's paragraphs, in order, from their first sentences.

    A paragraph that opens with a pronoun, or with "the company", continues the previous subject.
    """
    starts = [mention.start for mention in mentions]
    subjects: list[Subject] = []
    for opening in _PARAGRAPH.finditer(text):
        start = opening.end()
        end = _SENTENCE.search(text, start)
        stop = end.start() + 1 if end else len(text)
        surfaces = _subject(
            text, start, stop, mentions[bisect_left(starts, start) : bisect_left(starts, stop)], not subjects
        )
        names: dict[str, str] = {}
        for surface in surfaces:
            names.setdefault(canonical_name(surface), surface)
        names.pop("", None)
        if names:
            subjects.append(Subject(start, tuple((surface, name) for name, surface in names.items())))
    return subjects


def _subject(text: str, start: int, stop: int, mentions: Sequence[Mention], opens: bool) -> list[str]:
    """Return the names of a sentence's subject as written, the main one first."""
    match = _ARTICLE.match(text, start, stop)
    at = match.end() if match else start
    heads = [mention for mention in mentions if mention.start <= at < mention.end]
    phrase = _phrase(text, at, stop)
    names: list[str] = []
    longest = max((mention.end for mention in heads), default=at)
    if phrase and at + len(phrase) > longest:
        names.append(phrase)
    elif heads:
        names += [text[mention.start : mention.end] for mention in heads]
    elif (
        mentions
        and (opens or _CAPITAL.match(text, at))
        and text[start:stop].split(None, 1)[0].lower() not in _REFERRING
    ):
        first = mentions[0]
        names.append(text[first.start : first.end])
    if not names:
        return []
    for mention in mentions:
        if _KNOWN_AS.search(text, max(start, mention.start - 30), mention.start):
            names.append(text[mention.start : mention.end])
    for name in list(names):
        names += _shorter(name)
    return names


def _phrase(text: str, at: int, stop: int) -> str:
    """Return the words before the verb of a defining sentence if they begin with a capital or a digit; else empty."""
    if not _CAPITAL.match(text, at) and not text[at : at + 1].isdigit():
        return ""
    match = _PHRASE.match(text, at, stop)
    if not match:
        return ""
    after = match.end()
    while aside := _ASIDE.match(text, after, stop):
        after = aside.end()
    words = match[0].split()
    if not _VERB.match(text, after, stop) or len(words) > _WORDS or words[0].lower() in _REFERRING:
        return ""
    return match[0].strip("\"'“”‘’*_` ")


def _shorter(name: str) -> Iterator[str]:
    """Yield the shorter forms of a person's name: "Frank Tuttle" for "Frank Wright Tuttle"."""
    nickname = _NICKNAME.search(name)
    if nickname and (rest := f"{name[: nickname.start()]} {name[nickname.end() :]}".strip()):
        name = rest
        yield name
        yield f"{nickname[1]} {name.split()[-1]}"
    rank = _RANK.match(name)
    bare = name[rank.end() :] if rank else name
    words = bare.split()
    if rank and words:
        yield bare
    if not 3 <= len(words) <= 6 or not all(_CAPITAL.match(word) for word in words):
        return
    short = f"{words[0]} {words[-1]}"
    yield short
    if rank:
        yield f"{rank[0]}{short}"
    if not any(_INITIAL.fullmatch(word) for word in words):
        yield f"{words[0]} {' '.join(word[0] + '.' for word in words[1:-1])} {words[-1]}"
