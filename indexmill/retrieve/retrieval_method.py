"""The interface of retrieval methods, and validation of their input."""

from __future__ import annotations

import copy
import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from inspect import signature
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol, Self, TypeVar, cast, get_type_hints

import numpy as np
import numpy.typing as npt
from pydantic import Field

from indexmill.errors import BadInput, ConfigurationError
from indexmill.hits import Hit
from indexmill.mistakes import allowed_values
from indexmill.retrieve.passage_rows import passages_of
from indexmill.telemetry import stage
from indexmill.text.canonical_names import canonical_name
from indexmill.text.normalise import HIDDEN, parted

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from indexmill.retrieve.artifacts import Artifacts

P = TypeVar("P")

Vectors = npt.NDArray[np.float32]

Count = Annotated[int, Field(ge=0)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""The types of settings."""

Allowed = npt.NDArray[np.bool_]
"""A mask of the passages that may be found: ``(n_passages,)``, by row."""

Explanations = list[dict[str, Any]] | None
"""One explanation per passage; None if the method has none."""

EXPLAINED = 5
"""The maximum number of entities in a hit's explanation: those with the highest scores."""

READ = "read"
"""The key in ``QueryBatch.shared`` of the largest length of a shared list that any method reads."""

MOST_CHARACTERS = 16_384
"""The maximum length of a question: several times what an encoder reads."""

EXPLAINED_TOGETHER = 64
"""The number of questions whose hits are explained together."""


Encode = Callable[[list[str]], Vectors]
"""A function from texts to their unit vectors."""


@dataclass(frozen=True, slots=True)
class QueryBatch:
    """The questions of one retrieval, and the results that its methods share.

    questions: validated, not empty. vectors: ``(n_questions, d) float32``, parallel to questions; d is 0 if no method
    uses vectors. encode: encodes other texts, such as a name in a question, in the same way as the index's texts; None
    if the caller passed the vectors. allowed: the passages that take part, the same for all questions; None for all.
    readable: the passages that the user may read, a superset of ``allowed``; None if the user may read all. explain:
    True if hits carry explanations. names: for each question, canonical names passed with it, in addition to those in
    its text; empty if no question has any. shared: cached results by name.
    """

    questions: Sequence[str]
    vectors: Vectors
    encode: Encode | None = None
    allowed: Allowed | None = None
    explain: bool = True
    names: Sequence[Sequence[str]] = ()
    shared: dict[str, Any] = field(default_factory=dict)
    readable: Allowed | None = None

    def first_of(self, name: str, k: int, find: Callable[[int], list[P]], cut: Callable[[P], P]) -> list[P]:
        """Return the first k of each question's list, cached for all methods at the largest length that any needs.

        find: computes the lists at a given length. cut: shortens one list to k.
        """
        length, lists = self.shared.get(name, (0, []))
        if length < k:
            length = max(k, self.shared.get(READ, 0))
            lists = find(length)
            self.shared[name] = (length, lists)
        return lists if length == k else list(map(cut, lists))


class Ranking(NamedTuple):
    """The passages of one question, best first, ties by row.

    rows: ``(k,) int64``. scores: ``(k,)``. explain: returns JSON-ready explanations of the passages at some positions
    of ``rows``; None if there is nothing to explain, or if ``PassageRetriever.explanations`` explains several questions
    together. answer: the data for these explanations.
    """

    rows: npt.NDArray[np.int64]
    scores: npt.NDArray[np.floating]
    explain: Callable[[Sequence[int]], list[dict[str, Any]]] | None = None
    answer: Any = None


class Retriever(Protocol):
    """A retrieval method over one snapshot. Thread-safe; keeps no state between questions."""

    uses_vectors: bool
    """True if ``search`` needs the questions' vectors."""

    def with_parameters(self, parameters: Mapping[str, object]) -> Retriever:
        """Return a copy of the retriever with other settings; raises BadInput for an unknown or invalid setting."""
        ...

    def search(self, batch: QueryBatch, k: int) -> list[list[Hit]]:
        """Return at most k hits per question, best first, ties by row: bit-identical whatever else is in the batch."""
        ...


@dataclass(frozen=True, slots=True)
class NoParameters:
    """The parameters of a method without parameters."""


class PassageRetriever(ABC):
    """A ``Retriever`` whose hits are passages, so that another method can combine them.

    A method keeps its settings, a frozen dataclass, in ``_setting``. A method whose state depends on its settings
    recomputes this state in ``_use`` from data in memory, so a change of settings never reads an artifact again.
    """

    uses_vectors = True
    _setting: Any = NoParameters()

    def __init__(self, artifacts: Artifacts) -> None:
        self.passages = passages_of(artifacts)

    def with_parameters(self, parameters: Mapping[str, object]) -> Self:
        """Return a copy with other settings that shares all data already read: see ``Retriever``."""
        if not parameters:
            return self
        changed = copy.copy(self)
        changed._use(override_parameters(self._setting, parameters))
        return changed

    def _use(self, setting: Any) -> None:
        """Apply settings: called on a copy that is not shared yet."""
        self._setting = setting

    @abstractmethod
    def rank(self, batch: QueryBatch, k: int) -> Iterator[Ranking]:
        """Rank at most k passages for every question."""

    def reads(self, k: int) -> int:
        """Return how many passages of a shared list the method reads in order to return k passages."""
        return k

    def coverage(self, batch: QueryBatch) -> npt.NDArray[np.float64] | None:
        """Return the share of each question that the method's graph covers: see ``indexmill.retrieve.coverage``.

        ``(n_questions,)``, 0 to 1; None for a method that does not link questions to entities.
        """
        return None

    def explanations(self, rankings: Sequence[Ranking], positions: Sequence[Sequence[int]]) -> list[Explanations]:
        """Explain the passages at some positions of each ranking; None if there are no explanations."""
        return [
            None if ranking.explain is None else ranking.explain(explained)
            for ranking, explained in zip(rankings, positions, strict=True)
        ]

    def search(self, batch: QueryBatch, k: int) -> list[list[Hit]]:
        """Return each question's passages as hits, explained for a tile of questions at a time: see ``Retriever``."""
        hits: list[list[Hit]] = []
        with stage("rank"):
            ranked = self.rank(batch, k)
        while True:
            with stage("rank"):
                tile = list(islice(ranked, EXPLAINED_TOGETHER))
            if not tile:
                return hits
            explanations: Sequence[Explanations] = [None] * len(tile)
            if batch.explain:
                with stage("explain"):
                    explanations = self.explanations(tile, [range(len(ranking.rows)) for ranking in tile])
            reasons: list[dict[str, Any] | None] = []
            for ranking, of_question in zip(tile, explanations, strict=True):
                reasons += [None] * len(ranking.rows) if of_question is None else of_question
            rows = np.concatenate([ranking.rows for ranking in tile])
            scores = np.concatenate([np.asarray(ranking.scores, dtype=np.float64) for ranking in tile])
            with stage("read"):
                tile_hits = iter(self.passages.hits(rows, scores, reasons))
                hits += [list(islice(tile_hits, len(ranking.rows))) for ranking in tile]


def parameters_of(artifacts: Artifacts, family: str, parameters: type[P]) -> P:
    """Read a family's parameters, a dataclass, from the manifest; parameters that it lacks keep their defaults.

    Raises ConfigurationError for an unknown parameter or an invalid value.
    """
    entry = artifacts.manifest.families.get(family)
    published: dict[str, Any] = {} if entry is None else dict(entry.parameters)
    unknown = sorted(set(published) - set(signature(parameters).parameters))
    if unknown:
        raise ConfigurationError(f"{artifacts.path}: {family} has no parameters {unknown}; install a newer indexmill")
    try:
        return override_parameters(parameters(), published, f"{artifacts.path}: the manifest's parameters of {family}")
    except BadInput as error:
        raise ConfigurationError(f"{error}; open a snapshot that a build published") from error


def override_parameters(setting: P, changes: Mapping[str, object], argument: str = "parameters=") -> P:
    """Replace some of a method's parameters (a dataclass) for one retrieval. argument: names ``changes`` in errors.

    Raises BadInput for an unknown parameter and for an invalid value, such as True or the string "0.5" for a number.
    """
    from pydantic import ValidationError

    kind: Any = type(setting)
    kinds = _adapters(kind)
    unknown = sorted(set(changes) - set(kinds), key=repr)
    if unknown:
        has = f"the method's parameters are {', '.join(kinds)}" if kinds else "the method has no parameters"
        raise BadInput(f"{argument}: unknown {', '.join(map(repr, unknown))}; {has}{did_you_mean(unknown, kinds)}")
    checked: dict[str, Any] = {}
    for name, value in changes.items():
        plain = value.item() if isinstance(value, np.generic) else value
        try:
            checked[name] = kinds[name].validate_python(plain, strict=True)
        except ValidationError as error:
            schema = kinds[name].json_schema()
            raise BadInput(f"{argument}: {name} is {plain!r}; expected {allowed_values(schema, schema)}") from error
    return cast(P, replace(cast(Any, setting), **checked))


def by_method(settings: Mapping[str, object]) -> tuple[dict[str, object], dict[str, dict[str, object]]]:
    """Split settings into those with a plain name, and those named ``method.setting``, grouped by method."""
    plain: dict[str, object] = {}
    of_methods: dict[str, dict[str, object]] = {}
    for name, value in settings.items():
        method, dot, rest = name.partition(".") if isinstance(name, str) else (name, "", "")
        if dot:
            of_methods.setdefault(method, {})[rest] = value
        else:
            plain[name] = value
    return plain, of_methods


def did_you_mean(unknown: Sequence[object], known_names: Iterable[str]) -> str:
    """Return `` (did you mean 'damping'?)`` for names that resemble known ones, else an empty string."""
    names = list(known_names)
    meant = [near[0] for one in unknown if (near := difflib.get_close_matches(str(one), names, n=1))]
    return f" (did you mean {' and '.join(map(repr, dict.fromkeys(meant)))}?)" if meant else ""


@cache
def _adapters(kind: type[Any]) -> dict[str, TypeAdapter[Any]]:
    """Return the validator of each setting of a dataclass."""
    from pydantic import TypeAdapter

    hints = get_type_hints(kind, include_extras=True)
    return {setting.name: TypeAdapter(hints[setting.name]) for setting in fields(kind)}


def preset(setting: P, paper: Mapping[str, object]) -> P:
    """Return the settings; if ``preset`` is ``paper``, settings that still have our default get the paper's value."""
    if getattr(setting, "preset", "ours") != "paper":
        return setting
    ours = {one.name: one.default for one in fields(cast(Any, setting))}
    theirs = {name: value for name, value in paper.items() if getattr(setting, name) == ours[name]}
    return cast(P, replace(cast(Any, setting), **theirs))


def check_count(name: str, count: object) -> int:
    """Return a count, such as ``k``, as an int; raises BadInput for anything but a whole number of at least 1."""
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise BadInput(f"{name} is {count!r}; expected a whole number of at least 1")
    return int(count)


def check_question(question: object) -> str:
    """Return the question without surrounding white space and hidden characters (`indexmill.text.normalise.HIDDEN`).

    Very long runs of combining characters are broken up. Raises BadInput if it is not valid Unicode text or is longer
    than MOST_CHARACTERS.
    """
    if not isinstance(question, str):
        raise BadInput(f"a question is {question!r}; expected a str")
    if len(question) > MOST_CHARACTERS:
        raise BadInput(
            f"a question has {len(question):,} characters; expected at most {MOST_CHARACTERS:,}, and encoders read "
            f"even fewer: ask a shorter question ({question[:60]!r}...)"
        )
    try:
        question.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadInput(f"a question is not valid Unicode text (character {error.start}): {question!r}") from error
    return parted(HIDDEN.sub("", question).strip())


def check_names(names: object, questions: int) -> list[list[str]]:
    """Return the canonical names of each question; raises BadInput unless each question has a sequence of names."""
    if not isinstance(names, Sequence) or isinstance(names, str) or len(names) != questions:
        raise BadInput(f"names= is {names!r:.200}; expected a sequence of names for each of {questions} questions")
    for named in names:
        if isinstance(named, str) or not isinstance(named, Sequence) or not all(isinstance(n, str) for n in named):
            raise BadInput(f"names= contains {named!r:.200} for a question; expected a sequence of names")
    canonical = ((canonical_name(name) for name in named) for named in names)
    return [list(dict.fromkeys(name for name in named if name)) for named in canonical]


def check_vectors(vectors: object, questions: int, dimensions: int | None) -> Vectors:
    """Return vectors as ``(n_questions, d) float32``. dimensions: d, None for any d. Raises BadInput."""
    try:
        array = np.ascontiguousarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise BadInput(f"vectors= is not an array of numbers: {error}") from error
    if array.ndim != 2 or array.shape[0] != questions or dimensions not in (None, array.shape[1]):
        raise BadInput(f"vectors= has the shape {array.shape}; expected ({questions}, {dimensions or 'd'})")
    if not np.isfinite(array).all():
        raise BadInput("vectors= contains NaN or infinity")
    return array
