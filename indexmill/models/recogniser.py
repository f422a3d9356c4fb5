"""Recognisers, which find the spans of a document that name entities (LinearRAG, section 3.1).

``RulesRecogniser`` needs no model: edited text marks entities in regular ways (capitals, quotation marks, digits,
identifiers), and a few compiled patterns find them more than ten times as fast as a statistical tagger.
``SpacyRecogniser`` wraps any installed spaCy pipeline; ``WordListRecogniser`` is the deterministic double for tests.
All are pure functions of one document, so that mentions can be cached under the document's digest. ``question_runs`` is
the counterpart for questions.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, Protocol

from indexmill.errors import ModelUnavailable
from indexmill.extras import not_installed
from indexmill.text.canonical_names import canonical_name, canonical_words
from indexmill.text.terms import UNSPACED

Field = Literal["title", "text"]
Kind = Literal["title", "subject", "name", "alias", "part", "work", "code", "term", "date", "number"]


@dataclass(frozen=True, slots=True)
class Mention:
    """One span that names an entity.

    ``start`` and ``end`` are character offsets in the field (``title`` or ``text``). ``kind`` is ``title`` for the
    subject of the document, ``subject`` for an empty span from which on the text has a new subject (its ``name``),
    ``name`` for a proper name, ``alias`` for a variant of a name that has a standard form, ``part`` for a name inside a
    longer name (the owner in a possessive, a name without its rank), ``work`` for a quoted title, ``code`` for an
    identifier or file name, ``term`` for a noun that is no name (in languages where capitals or spelling do not tell
    them apart), ``date`` for a date and ``number`` for a number. Mentions may overlap. ``name`` is the canonical name
    of the entity; None if it is derived from the span's text.
    """

    field: Field
    start: int
    end: int
    kind: Kind
    name: str | None = None


class Recogniser(Protocol):
    """Finds the mentions of a document; a pure function of title, text and language."""

    @property
    def fingerprint(self) -> str:
        """The inputs that determine the output: name, version, and digest of the underlying model."""
        ...

    def recognise(self, title: str, text: str, language: str = "") -> list[Mention]:
        """Find the mentions of title and text, sorted by field, start and end, without duplicates.

        language: a two-letter code (ISO 639-1); empty if unknown.
        """
        ...


# --- the rules -------------------------------------------------------------------------------------------------------

_UPPER = "".join(c for c in map(chr, [*range(0x0600), *range(0x10A0, 0x1100), *range(0x1E00, 0x2000)]) if c.isupper())
_UPPER_SET = frozenset(_UPPER)

_MONTHS = (
    "January|February|March|April|May|June|July|August|September|October|November|December"
    "|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec"
)
_MONTH_SET = frozenset(_MONTHS.split("|"))
_WEEKDAYS = frozenset(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"])

# Words that connect the parts of a name if there are capitalised words on both sides.
_CONNECTIVES = (
    "of|the|de|du|des|del|della|di|da|das|do|dos|degli|delle|la|le|les|los|las|lo|von|van|vom|zu|zum|zur|der|den|dem"
    "|ter|ten|op|af|av|y|e|et|und|al|el|ul|ud|bin|ibn|bint|abu|ben|bar|no|na|ni|ng|&"
)
_ABBREVIATIONS = (
    "St|Ste|Dr|Mr|Mrs|Ms|Jr|Sr|Lt|Col|Gen|Prof|Rev|Sgt|Capt|Cmdr|Mt|Ft|Vol|No|Hon|Gov|Sen|Rep|Bros|Messrs|Mme|Mlle|Op"
)

_CAPITALISED = (
    rf"(?:(?:{_ABBREVIATIONS})\.(?=\s*[{_UPPER}\d])"  # St. Louis
    rf"|[{_UPPER}]\.(?:\s?[{_UPPER}]\.)*+(?=\s?[{_UPPER}]|\W)"  # J. R. R., U.S.
    rf"|[{_UPPER}]\w{{0,60}}+(?:['’&-]\w{{1,30}}+|[‐‑]\w{{1,30}}+"  # Jean-Luc, O'Brien
    rf"|[-‐‑] (?:\w{{1,3}}[-‐‑] ?)?(?=[{_UPPER}])\w{{1,30}}+){{0,4}}+(?!\w)(?:['’](?=[ ]))?)"  # Limburg- Styrum
)
_NAME = re.compile(
    rf"(?<![\w.@#\\-]){_CAPITALISED}"
    rf"(?: {{1,2}}(?:(?:{_CONNECTIVES}) {{1,2}}){{0,3}}{_CAPITALISED}| \d{{1,4}}+(?![\w%-]|[,.]\d|\s?[–-])){{0,11}}+"
)
_WORD = re.compile(r"\S+")

# Words that are capitalised only because they open a sentence: there they are neither a name nor its first word.
_OPENERS = frozenset(
    """
    a about above according across actually additionally after afterwards again against all almost along already
    also although always am among amongst an and another any anyone anything apart are around as aside at away
    back based be became because been before began behind being below beneath beside besides better between
    beyond both born briefly but by came can cannot click compared concerning consequently considering contrary
    currently depending describes described despite did died directed do does during each early either
    eventually even ever every everyone everything except few finally first firstly following for former
    formerly founded four from further furthermore generally get given had half has have having he hence her
    here hers herself him himself his historically how however i if in include includes including indeed
    initially inside instead into is it its itself just known last lastly late later latter let like likewise
    located made mainly many may maybe meanwhile might more moreover most mostly much must my named near nearly
    neither never nevertheless next no nobody none nonetheless nor not note nothing notable notably now of off
    often on once one only onto opposite or originally other others otherwise our out outside over overall own
    part partly per perhaps please possibly presently previously prior probably produced published rather read
    recent recently regarding released returns same second secondly see set several she should similarly since
    situated so some someone something sometimes soon specifically specifies starring still subsequently such
    surely than that the their theirs them themselves then there thereafter therefore these they third this
    those though three through throughout thus to today together too toward towards traditionally two type
    typically under underneath unless unlike until up upon us use used uses using usually value very via was we
    well were what whatever when whenever where whereas wherever whether which while who whoever whole whom
    whose why will with within without would written yes yet you young your
    """.split()  # noqa: SIM905 - a list of words reads better as text
)
# Pronouns and similar words that end a name if a full stop after an initial seems to continue it ("Daniel K. He was").
_BREAKERS = frozenset(
    """
    He She It They His Her Its Their We In On At The A An This These Those That There After Before During When
    While As By For From With And But Or However Although Since I If He's She's It's
    """.split()  # noqa: SIM905 - a list of words reads better as text
)
# Ranks and forms of address: a name is also found without them.
_RANKS = frozenset(
    """
    Admiral Archbishop Archduchess Archduke Ayatollah Baron Baroness Bishop Blessed Brigadier Brother Captain
    Cardinal Chancellor Chief Colonel Commander Commodore Count Countess Dame Detective Dr Dr. Duchess Duke Earl
    Emperor Empress Father Gen. General Governor Grand Infanta Inspector Judge Justice King Lady Lieutenant Lord
    Lt. Madame Mademoiselle Major Marquess Marquis Mayor Miss Monsieur Mother Mr Mr. Mrs Mrs. Ms Ms. Officer
    Pope President Prime Minister Prince Princess Private Professor Prof. Queen Rabbi Rev. Reverend
    Senator Sergeant Sheikh Shah Sir Sister Sultan Tsar Vice Viscount
    """.split()  # noqa: SIM905 - a list of words reads better as text
)
# A rank with a region after a comma belongs to the name before the comma: "Beatrice I, Countess of Burgundy".
_STYLE_OF = re.compile(
    r"(?:(?:\d+\w\w|First|Second|Third|Fourth|Fifth|Dowager|Hereditary|Grand|Crown) )?"
    r"(?:Archduchess|Archduke|Baron|Baroness|Burgrave|Count|Countess|Dauphin|Duchess|Duke|Earl|Elector|Electress|Emperor"
    r"|Empress|Infanta|Infante|King|Lady|Landgrave|Landgravine|Lord|Marchioness|Margrave|Margravine|Marquess|Marquis"
    r"|Prince|Princess|Queen|Viscount|Viscountess) (?:of|de|von|zu) "
)
_WORK = re.compile(
    rf"\"\s?([{_UPPER}\d][^\"\n]{{1,80}}?)[\s,.;]?\""
    rf"|[“„«]\s?([{_UPPER}\d][^“”„«»\"\n]{{1,80}}?)[\s,.;]?[”“»]"
    rf"|[《「『]([^《》「」『』\n]{{1,60}})[》」』]"
    rf"|(?<![\w*])\*([{_UPPER}\d][^*\n]{{1,80}})\*(?![\w*])"
)
_QUOTING = frozenset('"“„«《「『*')

_UNITS = (
    "%|percent|per cent|°C|°F|km²|km2|mi²|km/h|mph|km|cm|mm|nm|m²|m|kg|mg|g|t|lb|lbs|oz|ft|in|mi|mile|miles|metre"
    "|metres|meter|meters|kilometre|kilometres|kilometer|kilometers|feet|foot|inches|inch|acres|acre|hectares|ha"
    "|square miles|square kilometres|square kilometers|tonnes|tons|kilograms|pounds|litres|liters|gallons|MW|GW|kW|W"
    "|V|kV|Hz|kHz|MHz|GHz|bits?|bytes?|KB|MB|GB|TB|KiB|MiB|GiB|ms|seconds|minutes|hours|days|weeks|months|years|pixels|dpi|million"
    "|billion|trillion|thousand|people|inhabitants|episodes|dollars|euros"
)
_DIGITS = re.compile(
    r"(?<![\w.,:/\\-])\d"
    r"(?:"
    rf"\d?(?:st|nd|rd|th)? (?:of )?(?:{_MONTHS})\b(?:,? \d{{3,4}}\b)?"  # 20 March 851
    r"|\d{3}-\d\d-\d\d(?![\w-])"  # 2020-01-31
    r"|\d\d\d(?:s\b|(?![\w,.:%°$/-]\d|\w|\s?%))"  # 1956, 1990s
    rf"|[\d,.]{{0,14}}+(?: (?:million|billion|thousand))?[ -]?(?:{_UNITS})(?!\w)"  # 40.108 mi², 9.5 million people
    r"|\d{0,2}(?:,\d{3}){1,4}(?!\w)"  # 9,984
    r")"
)
_MONTH_DATE = re.compile(rf"(?:{_MONTHS})\b\.?(?: \d{{1,2}}(?:st|nd|rd|th)?\b(?!,\d|:))?(?:,? \d{{3,4}}\b)?")

_EXTENSIONS = (
    "dll|exe|sys|h|hpp|c|cc|cpp|cs|py|pyi|js|ts|tsx|jsx|json|jsonl|xml|yaml|yml|toml|ini|cfg|conf|txt|md|rst|csv|tsv|html"
    "|htm|css|sh|bat|cmd|ps1|lib|obj|pdb|idl|inf|reg|msi|zip|gz|tar|tgz|zst|jar|war|java|kt|go|rs|rb|php|pl|sql|db|sqlite"
    "|log|lock|so|dylib|bin|dat|png|jpg|jpeg|gif|svg|bmp|ico|pdf|doc|docx|xls|xlsx|ppt|pptx|wav|mp3|mp4|avi|vb|vbs|asp"
    "|aspx|hlsl|glsl|proto|parquet|ipynb|rc|manifest|wasm|swift|lua|tf|env"
)
_CODE = re.compile(
    r"(?<![\w.:/-])(?:"
    r"--?[A-Za-z][\w-]{1,40}(?![\w/])"  # --flag
    r"|(?=[\w~]{1,64}(?:\\?_|::|\(\)|\.\w|->|[A-Z]))"  # only words that continue like code
    r"(?:"
    rf"[A-Za-z0-9][\w-]{{0,60}}(?:\.[\w-]{{1,30}}){{0,3}}\.(?:{_EXTENSIONS})\b(?![\w(])"  # foo.dll
    r"|~?[A-Za-z_]\w{0,60}(?:(?:::|\\?_\w?|->)~?\w{1,60}){1,8}(?:\(\))?"  # IADs::get_Class, WM\_PAINT
    r"|[A-Z][A-Za-z]\w{0,60}(?:\.[A-Z][a-z]\w{0,60}){1,8}(?:\.\w{1,60})?"  # Microsoft.Isam.Esent
    r"|[A-Za-z_]\w{0,60}(?:\.\w{1,60}){0,4}\(\)"  # open(), os.path.join()
    r"|[a-z]{1,20}[A-Z]\w{1,60}"  # sAMAccountName
    r"|(?!Ma?c[A-Z]|De[A-Z]|Di[A-Z]|Le[A-Z]|La[A-Z]|Van[A-Z]|Von[A-Z]|Fitz[A-Z]|O[A-Z]|D[A-Z])"
    r"[A-Z]{1,8}[a-z0-9]{1,40}(?:[A-Z]{1,8}[a-z0-9]{1,40}|[A-Z]{2,8}\b){1,8}"  # GetMessage, IDirect3DDevice
    r")"
    r"|0x[0-9A-Fa-f]{2,16}\b"
    r")"
)
_CODE_SIGN = re.compile(r"[a-z0-9][A-Z]|_|::|->|\(\)|[a-z]\.[A-Za-z]|(?<!\w)--?[A-Za-z]|0x")
_SPAN = re.compile(r"`([^`\n]{2,80})`")

# Patterns of text that contains no names, each after a string that every match contains, for a quick test.
_MASKED = (
    ("```", re.compile(r"^```[^\n]*\n.{0,20000}?^```[^\n]*$", re.DOTALL | re.MULTILINE)),
    ("](", re.compile(r"\]\([^()\s]{0,500}(?:\s\"[^\"\n]{0,200}\")?\)")),
    ("<", re.compile(r"</?[A-Za-z][^<>\n]{0,500}>")),
    ("://", re.compile(r"(?:https?|ftp|file)://[^\s<>\"')\]]{1,2000}")),
    ("&", re.compile(r"&(?:lt|gt|amp|nbsp|quot|#\d{1,5});")),
    ("@", re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,4}")),
)

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff々〆"
_EAST_ASIAN = re.compile(
    rf"[\u30a1-\u30ff]{{2,30}}+(?:[・＝][\u30a1-\u30ff]{{1,30}}+){{0,4}}|(?<![{_HAN}])[{_HAN}]{{2,8}}+(?![{_HAN}])"
)

_RAW_WORD = re.compile(r"\w[\w'’.]*")
_FUNCTION_WORDS = frozenset(
    """
    a about after all also an and any are as at be because been before being both but by can could did do does
    during each either few first for from had has have he her here him his how i if in into is it its just last
    many may me more most much my no nor not now of on once one only or other our out over own s same she should
    since so some such than that the their them then there these they this those through to too two under until
    up very was we were what when where whether which while who whom whose why will with within without would
    you your
    """.split()  # noqa: SIM905 - a list of words reads better as text
)

_DATE = re.compile(rf".*(?:{_MONTHS}).*|\d{{4}}s?|\d{{4}}-\d\d-\d\d")
_LOWER_WORD = re.compile(r"(?<!\w)[^\W\d_]\w+")
_SENTENCE_END = frozenset(".!?:;\n•|#>…。！？")
_LONGEST = 120  # the maximum characters of a mention


class RulesRecogniser:
    """Finds names by their spelling, without a model; it knows only function words, calendar words and ranks.

    A capitalised word that opens a sentence is a name unless it is a function word or the document also writes it in
    lower case. The entire title is a mention. So is the title without a qualifier in parentheses, so that *Philippe
    Chevallier (actor)* matches *Philippe Chevallier* elsewhere. Every pattern is bounded, so the running time is
    linear.
    """

    fingerprint = "rules/1"

    def recognise(self, title: str, text: str, language: str = "") -> list[Mention]:
        in_text: dict[tuple[int, int], Kind] = {}
        for start, end, kind in _text_spans(text):
            in_text.setdefault((start, end), kind)
        in_title: dict[tuple[int, int], Kind] = {}
        for start, end, kind in _title_spans(title):
            in_title.setdefault((start, end), kind)
        return [
            *(Mention("text", start, end, in_text[start, end]) for start, end in sorted(in_text)),
            *(Mention("title", start, end, in_title[start, end]) for start, end in sorted(in_title)),
        ]


def title_mentions(title: str) -> list[Mention]:
    """Return the title's mentions, with and without its qualifier, for recognisers that do not find them."""
    return [Mention("title", start, end, kind) for start, end, kind in _title_spans(title) if kind == "title"]


def names_nothing(text: str) -> bool:
    """Return True if a text consists only of function words, in any case; False for acronyms such as IT."""
    words = canonical_words(text) if len(text) < _LONGEST else [text]
    acronym = text.isupper() and len(text) > 1
    return not acronym and all(word in _FUNCTION_WORDS for word in words)


def _title_spans(title: str) -> Iterator[tuple[int, int, Kind]]:
    """Yield the whole title, the title without its qualifier, and the names in the title."""
    start, end = _trim(title, 0, len(title))
    if start == end or end - start > _LONGEST:
        return
    yield start, end, "title"
    if title[end - 1] == ")":
        unqualified = _trim(title, start, title.rfind("(", start, end))
        if unqualified[0] < unqualified[1]:
            yield *unqualified, "title"
    for first, last, kind in _text_spans(title):
        if kind not in ("date", "number"):
            yield first, last, "part" if kind == "name" else kind


def _text_spans(text: str) -> Iterator[tuple[int, int, Kind]]:
    """Yield the spans of a text; if a span is found twice, its first kind counts."""
    masked = _mask(text)
    claimed: list[tuple[int, int]] = []
    if not _QUOTING.isdisjoint(masked):
        for match in _WORK.finditer(masked):
            start, end = match.span(match.lastindex or 0)
            if _looks_like_a_title(masked[start:end]):
                claimed.append((start, end))
                yield start, end, "work"
    if not masked.isascii():
        for match in _EAST_ASIAN.finditer(masked):
            yield match.start(), match.end(), "name"
    if _CODE_SIGN.search(masked):
        for start, end in _code_spans(masked):
            claimed.append((start, end))
            yield start, end, "code"
    digits = [match.span() for match in _DIGITS.finditer(masked)]
    claimed += digits
    covered = _Cover(claimed)
    dates = []
    for start, end, kind in _name_spans(masked):
        if not covered.holds(start, end):
            yield start, end, kind
            if kind == "date":
                dates.append((start, end))
    dated = _Cover(dates)
    for start, end in digits:
        if not dated.holds(start, end):
            yield start, end, "date" if _DATE.fullmatch(masked, start, end) else "number"


def _name_spans(text: str) -> Iterator[tuple[int, int, Kind]]:
    """Yield proper names, names inside them, and dates that begin with a month."""
    before: tuple[int, int] | None = None
    ordinary: frozenset[str] | None = None
    for match in _NAME.finditer(text):
        for start, end, opens in _cut(text, match.start(), match.end()):
            first = text[start:end].partition(" ")[0]
            if first in _MONTH_SET:
                date = _MONTH_DATE.match(text, start)
                if date and any(c.isdigit() for c in date[0]):
                    yield start, date.end(), "date"
                    start, end = _trim(text, date.end(), end)
                elif date and date.end() >= end:
                    continue
            if start >= end or end - start > _LONGEST or text[start] not in _UPPER_SET:
                continue
            surface = text[start:end]
            if surface in _WEEKDAYS:
                yield start, end, "date"
                continue
            if opens and " " not in surface and not (surface.isupper() and len(surface) > 1):
                if ordinary is None:
                    ordinary = frozenset(_LOWER_WORD.findall(text))
                if surface.rstrip(".'’").lower() in ordinary:
                    continue
            yield start, end, "name"
            if before and text[before[1] : start] == ", " and _STYLE_OF.match(text, start):
                yield before[0], end, "name"
            before = (start, end)
            yield from _parts(text, start, end)


def _cut(text: str, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the names in a run of capitalised words, and whether each name opens a sentence.

    Removes words that are capitalised only because they open a sentence, and splits the run where a sentence begins.
    """
    for word in _WORD.finditer(text, start, end):
        if word[0] in _BREAKERS and word.start() > start and text[word.start() - 2] == ".":
            first, last = _trim(text, start, word.start())
            if last - first > 1:
                yield first, last, False
            start = word.start()
    opens = opens_sentence(text, start)
    if opens:
        for word in _WORD.finditer(text, start, end):
            start = word.start()
            bare = word[0].rstrip("'’.,").lower()
            whole = bare.partition("'")[0].partition("’")[0]
            if word[0][0] in _UPPER_SET and bare not in _OPENERS and whole not in _OPENERS:
                break
        else:
            return
    elif text[start:end] in _BREAKERS or text[start:end].lower() in _OPENERS:
        return
    start, end = _trim(text, start, end)
    if end - start > 1 or (end > start and text[start] not in "AI"):
        yield start, end, opens


def opens_sentence(text: str, start: int) -> bool:
    """Return True if a word that starts here opens a sentence."""
    at = start - 1
    while at >= 0 and start - at < 12 and text[at] in " \t\"“”'‘’()[]*_-–—":
        at -= 1
    return at < 0 or start - at >= 12 or text[at] in _SENTENCE_END


def _parts(text: str, start: int, end: int) -> Iterator[tuple[int, int, Kind]]:
    """Yield names inside a name (without its rank, both parts of a possessive), and "2004 X" for X in "the 2004 X"."""
    surface = text[start:end]
    if " " in surface:
        skip = 0
        for word in surface.split(" ")[:-1]:
            if word not in _RANKS:
                break
            skip += len(word) + 1
        if skip and surface[skip] in _UPPER_SET:
            yield start + skip, end, "part"
        for sign in ("'s ", "’s "):
            at = surface.find(sign)
            if at > 0:
                yield start, start + at, "part"
                if surface[at + 3 : at + 4] in _UPPER_SET:
                    yield start + at + 3, end, "part"
    year = text[max(0, start - 9) : start]
    if len(year) == 9 and year[:4] in ("the ", "The ") and year[4:8].isdigit() and year[8] == " ":
        yield start - 5, end, "name"  # the 2004 Sugar Bowl


def _code_spans(text: str) -> Iterator[tuple[int, int]]:
    for match in _CODE.finditer(text):
        yield match.start(), match.end()
    if "`" in text:
        for match in _SPAN.finditer(text):
            if " " not in match[1]:
                yield match.start(1), match.end(1)


def _looks_like_a_title(quoted: str) -> bool:
    """Return True if a quotation may be a title: at most 5 words, or 12 if half the long words are capitalised."""
    words = quoted.split()
    long_words = [word for word in words if len(word) > 3]
    capitalised = sum(not word[0].islower() for word in long_words)
    return len(words) <= 5 or (len(words) <= 12 and 2 * capitalised >= len(long_words))


def _mask(text: str) -> str:
    """Blank out text that contains no names, without moving the rest; identifiers in code fences are kept."""
    for sign, pattern in _MASKED:
        if sign in text:
            text = pattern.sub(_identifiers if sign == "```" else _blank, text)
    return text


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _identifiers(match: re.Match[str]) -> str:
    shown = [" "] * len(match[0])
    for start, end in _code_spans(match[0]):
        shown[start:end] = match[0][start:end]
    return "".join(shown)


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start] in " \t\n,;:'’\"":
        start += 1
    while start < end and text[end - 1] in " \t\n,;:\"'’-":
        end -= 1
    return start, end


class _Cover:
    """A set of spans; `holds` returns True if one of them contains a given span."""

    def __init__(self, spans: list[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._reach: list[int] = []  # the furthest end of the spans up to here
        for start, end in sorted(spans):
            self._starts.append(start)
            self._reach.append(max(end, self._reach[-1] if self._reach else 0))

    def holds(self, start: int, end: int) -> bool:
        at = bisect_right(self._starts, start) - 1
        return at >= 0 and self._reach[at] >= end


# --- questions -------------------------------------------------------------------------------------------------------


_LONGEST_NAME = 12  # words
_LONGEST_UNSPACED = 32  # characters of a name in a script without spaces
_MOST_CHARACTERS = 1_000  # of a question in such a script that are searched for names
_UNSPACED_LETTER = re.compile(f"[{UNSPACED}]")
_CHARACTER_OR_WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


def question_runs(question: str) -> list[tuple[str, int, int, bool]]:
    """Return every run of words in a question that may name an entity, longest first, then from left to right.

    Each run is (canonical name, start, end, capital); start and end count canonical words, or, in scripts without
    spaces between words, characters. ``capital`` is True if a word other than a function word has a capital or a
    leading digit, unless it only opens the sentence, or belongs to a script with spaces and without capitals.

    Runs are matched against the names in the corpus: users write questions in any case (``Lothair Ii's mother``,
    ``God'S Gift To Women``), so the corpus, not the question, decides which words are a name.
    """
    words = canonical_words(question)
    shown = _shown_words(question)
    text = " ".join(words)
    longest = _LONGEST_NAME
    units = list(_WORD.finditer(text))
    if not question.isascii():
        shown.update(word for word in words if _is_caseless(word))
        if _UNSPACED_LETTER.search(text):
            units, longest = list(_CHARACTER_OR_WORD.finditer(text[:_MOST_CHARACTERS])), _LONGEST_UNSPACED
    words = [unit[0] for unit in units]
    is_content = [word not in _FUNCTION_WORDS for word in words]
    is_shown = [content and word in shown for word, content in zip(words, is_content, strict=True)]
    contents, capitals = (list(accumulate(column, initial=0)) for column in (is_content, is_shown))  # before each word
    return [
        (text[units[start].start() : units[end - 1].end()], start, end, capitals[end] > capitals[start])
        for n in range(min(longest, len(words)), 0, -1)
        for start, end in enumerate(range(n, len(words) + 1))
        if contents[end] > contents[start] and words[start] != "the"
    ]


def _shown_words(question: str) -> set[str]:
    """Return the canonical words that a question writes with a capital or a leading digit."""
    shown: set[str] = set()
    for i, raw in enumerate(_RAW_WORD.findall(question)):
        if raw[0].isdigit() or any(c.isupper() for c in raw):
            folded = canonical_words(raw)
            if i or not folded or folded[0] not in _OPENERS:
                shown.update(folded)
    return shown


def _is_caseless(word: str) -> bool:
    """Return True for a word of two or more characters in a script without capitals and with spaces between words."""
    return len(word) > 1 and not word.isascii() and word.lower() == word.title() and not _UNSPACED_LETTER.search(word)


def question_names(question: str) -> list[str]:
    """Return the canonical names that the rules find in a question, in order, even if they are not in the corpus."""
    names = (
        canonical_name(question[mention.start : mention.end])
        for mention in RulesRecogniser().recognise("", question)
        if mention.kind in ("name", "work", "code")
    )
    return list(dict.fromkeys(name for name in names if name))


# --- spaCy -----------------------------------------------------------------------------------------------------------


class SpacyRecogniser:
    """Finds entities with an installed spaCy pipeline, specified by name or path.

    The fingerprint covers the version of spaCy and the bytes of the pipeline, but not its path. Raises
    ``ModelUnavailable`` if spaCy or the pipeline is not installed.
    """

    def __init__(self, name: str) -> None:
        try:
            import spacy  # a large optional library
        except ImportError as error:
            instead = "set the recogniser to 'rules'"
            raise not_installed(f"the recogniser {name!r}", "spacy", error, instead) from error
        try:
            self._pipeline: Any = spacy.load(name)
        except (OSError, ValueError) as error:
            raise ModelUnavailable(
                f"recogniser {name!r}: no spaCy pipeline of this name or path; install it with "
                "`python -m spacy download`, or set the recogniser to 'rules'"
            ) from error
        folder = self._pipeline.path
        if folder is None:
            raise ModelUnavailable(
                f"recogniser {name!r}: the pipeline was not loaded from a folder, so its bytes cannot be hashed; "
                "save it with nlp.to_disk and give the path"
            )
        meta = self._pipeline.meta
        self.fingerprint = (
            f"spacy-{version('spacy')}/{meta['lang']}_{meta['name']}/{meta['version']}/{_digest_of_folder(folder)}"
        )

    def recognise(self, title: str, text: str, language: str = "") -> list[Mention]:
        """Find the pipeline's entities, and the entire title; see ``Recogniser``."""
        kinds: dict[tuple[Field, int, int], Kind] = {
            ("title", mention.start, mention.end): mention.kind for mention in title_mentions(title)
        }
        fields: tuple[tuple[Field, str], ...] = (("title", title), ("text", text))
        for field, content in fields:
            for entity in self._pipeline(content).ents:
                kinds.setdefault((field, entity.start_char, entity.end_char), _SPACY_KINDS.get(entity.label_, "name"))
        return [Mention(*key, kinds[key]) for key in sorted(kinds)]


def _digest_of_folder(folder: Path) -> str:
    """Hash the relative paths and the bytes of a folder's files; the folder's location does not matter."""
    hashed = hashlib.sha256()
    files = sorted((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*") if path.is_file())
    for name, path in files:
        with path.open("rb") as file:
            hashed.update(name.encode("utf-8", "surrogateescape") + b"\0")
            hashed.update(hashlib.file_digest(file, "sha256").digest())
    return hashed.hexdigest()


_SPACY_KINDS: Mapping[str, Kind] = {
    "DATE": "date",
    "TIME": "date",
    "PERCENT": "number",
    "MONEY": "number",
    "QUANTITY": "number",
    "ORDINAL": "number",
    "CARDINAL": "number",
    "WORK_OF_ART": "work",
}


# --- the double ------------------------------------------------------------------------------------------------------


class WordListRecogniser:
    """A deterministic test double: finds the listed names where they occur as whole words."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(set(names))
        self.fingerprint = "wordlist/" + "\0".join(self._names)

    def recognise(self, title: str, text: str, language: str = "") -> list[Mention]:
        fields: tuple[tuple[Field, str], ...] = (("title", title), ("text", text))
        mentions = [
            Mention(field, match.start(), match.end(), "title" if field == "title" and match[0] == title else "name")
            for field, content in fields
            for name in self._names
            for match in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", content)
        ]
        return sorted(mentions, key=lambda mention: (mention.field, mention.start, mention.end))


def open_recogniser(name: str) -> Recogniser:
    """Open ``rules`` or an installed spaCy pipeline, by name or path; raises ``ModelUnavailable`` if it is missing."""
    return RulesRecogniser() if name == "rules" else SpacyRecogniser(name)
