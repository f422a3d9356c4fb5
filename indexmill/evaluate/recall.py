"""Evidence recall of retrieval methods on a set of questions whose evidence is known.

Evidence recall@k of a question is the share of its gold documents among the first k distinct documents that a method
returns; several passages of one document count once. A set's recall is the mean over its questions, as the papers
of the index families report it.

A summary is not evidence: it names every document below it, up to the entire corpus, and may not mention most of them.
Nor are descriptions of entities or communities, attributes, or high-level elements. A relation may occur in any number
of documents in the same words, and nothing ranks these documents: one hit would return any number of documents. So only
passages and units, each from one document, count as evidence. All other hits count only towards the tokens read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.errors import BadInput
from indexmill.hits import Hit
from indexmill.models.progress import Items, report_progress
from indexmill.results import HitReference, QuestionResult, evidence_documents, ranks_of, recall
from indexmill.retrieve.retrieval_options import RetrievalOptions
from indexmill.retrieve.rights import UNRESTRICTED

if TYPE_CHECKING:
    from indexmill.retrieve.retrieval_method import Vectors
    from indexmill.snapshot import Snapshot

_Retrieve = Callable[[Sequence[int], int], list[list[Hit]]]

WARM = 64
"""The number of warm-up questions before timing starts, if there is no reranker."""

BATCH = 256
"""The number of questions per batch, which bounds the memory of an evaluation."""


@dataclass(frozen=True, slots=True)
class Question:
    """A line of a question file: ``{"id", "question", "gold_ids", "type", "answer"}``; the last two are optional.

    gold_ids: the documents with the evidence; empty only if the file was read for answers. answers: the right answers,
    any of which suffices; empty if the line has none.
    """

    id: str
    question: str
    gold_ids: tuple[str, ...]
    type: str | None = None
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MethodResult:
    """The results of one method on a set of questions.

    recall: mean evidence recall by k. tokens_per_question: the tokens of the hits up to the largest k; None if the
    snapshot does not count tokens. milliseconds_per_question: the time of retrieval in batches, without encoding. each:
    the result of each question, in the order of the questions.
    """

    questions: int
    recall: dict[int, float]
    tokens_per_question: float | None
    milliseconds_per_question: float
    encode_milliseconds_per_question: float
    types: dict[str, tuple[int, dict[int, float]]]
    each: tuple[QuestionResult, ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as ``evaluate --json`` prints it."""
        fields: dict[str, Any] = {
            **_named(self.recall),
            "questions": self.questions,
            "tokens_per_question": self.tokens_per_question,
            "milliseconds_per_question": self.milliseconds_per_question,
            "encode_milliseconds_per_question": self.encode_milliseconds_per_question,
        }
        if self.types:
            fields["types"] = {kind: {**_named(means), "questions": n} for kind, (n, means) in self.types.items()}
        return fields


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The results of all methods.

    unknown_gold_ids: the number of gold documents that the snapshot lacks, which count as missed. statistics: the
    statistics of the families that declare any, by key.
    """

    version: int | None
    methods: dict[str, MethodResult]
    gold_ids: int
    unknown_gold_ids: int
    statistics: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation as ``evaluate --json`` prints it; statistics only if there are any."""
        fields = {
            "version": self.version,
            "methods": {name: result.to_dict() for name, result in self.methods.items()},
            "gold_ids": self.gold_ids,
            "unknown_gold_ids": self.unknown_gold_ids,
        }
        return {**fields, **self.statistics}


def read_questions(path: str | Path, evidence: bool = True) -> list[Question]:
    """Read a JSON Lines file. evidence: each line must name gold documents. Raises BadInput, naming the line."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot read the question file: {error.strerror or error}") from error
    return parse_questions(data, str(path), evidence)


def parse_questions(data: bytes, where: str, evidence: bool = True) -> list[Question]:
    """Parse the bytes of a question file called `where`; raises what `read_questions` raises."""
    lines = data.splitlines()
    questions = [
        _question(f"{where}:{number}", line, evidence) for number, line in enumerate(lines, start=1) if line.strip()
    ]
    if not questions:
        raise BadInput(f"{where}: contains no questions; expected lines of " + '{"id", "question", "gold_ids"}')
    return questions


def _question(where: str, line: bytes, evidence: bool) -> Question:
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: is not UTF-8 (byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}: is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise BadInput(f"{where}: is a JSON {type(record).__name__}; expected an object")
    question, gold, kind = record.get("question"), record.get("gold_ids"), record.get("type")
    if not isinstance(question, str) or not question.strip():
        raise BadInput(f'{where}: "question" is {question!r}; expected a string')
    if any("\ud800" <= character <= "\udfff" for character in question):
        raise BadInput(f'{where}: "question" contains half of a surrogate pair, which is not valid text: {question!r}')
    if gold is None and not evidence:
        gold = []
    if not isinstance(gold, list) or (evidence and not gold) or not all(isinstance(gold_id, str) for gold_id in gold):
        raise BadInput(f'{where}: "gold_ids" is {gold!r}; expected a list of at least one document id')
    if kind is not None and not isinstance(kind, str):
        raise BadInput(f'{where}: "type" is {kind!r}; expected a string')
    answers = _answers(where, record.get("answer"))
    return Question(str(record.get("id", "")), question, tuple(dict.fromkeys(gold)), kind, answers)


def _answers(where: str, value: object) -> tuple[str, ...]:
    """Read the right answers of a line: a text, a number, true for yes, false for no, or a list of these."""
    answers = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(answer, (str, int, float)) for answer in answers):
        raise BadInput(f'{where}: "answer" is {value!r}; expected a string, or a list of strings any of which is right')
    texts = ("yes" if answer is True else "no" if answer is False else str(answer).strip() for answer in answers)
    return tuple(dict.fromkeys(text for text in texts if text))


def evaluate(
    snapshot: Snapshot,
    questions: Sequence[Question],
    methods: Sequence[str] | None = None,
    ks: Sequence[int] = (5, 10),
    vectors: Vectors | None = None,
    clock: Callable[[], float] = time.perf_counter,
    parameters: Mapping[str, Mapping[str, object]] | None = None,
    tokens: int | None = None,
    options: RetrievalOptions | None = None,
) -> Evaluation:
    """Measure the evidence recall of each method (by default all that the snapshot has) on the questions.

    vectors: the questions' vectors, ``(n_questions, d) float32``; computed if None. Then names that match no entity are
    encoded, too, as in a query, within the time of a retrieval. parameters: settings by method that override the
    snapshot's, such as ``{"dense": {"title": 0.1}}``. tokens: keep hits of each question beyond the largest k until
    they have this many tokens; changes neither recall nor time. options: the filter, reranker and principals; gold
    documents that a filter excludes count as missed. By default the whole index is measured, regardless of access
    control.
    Raises BadInput for no questions, a k below 1, or settings that a method does not accept, FamilyNotFound for a
    method that the snapshot lacks.
    """
    from indexmill.retrieve.method_registry import families_of
    from indexmill.retrieve.reader_family import load
    from indexmill.retrieve.retrieval_method import check_count

    if not questions:
        raise BadInput("there are no questions to evaluate")
    if not ks:
        raise BadInput("no k is given")
    ks = sorted({check_count("k", k) for k in ks})
    names = list(dict.fromkeys(methods)) if methods else list(snapshot.methods)
    settings = {} if parameters is None else {name: dict(of_method) for name, of_method in parameters.items()}
    if stray := sorted(set(settings) - set(names)):
        raise BadInput(
            f"parameters= has settings of {', '.join(stray)}, but only {', '.join(names)} "
            f"{'is' if len(names) == 1 else 'are'} evaluated"
        )
    encoded_in = 0.0
    uses = {name: snapshot.retriever(name).with_parameters(settings.get(name, {})).uses_vectors for name in names}
    options = options or RetrievalOptions(principals=UNRESTRICTED)
    options = replace(options, explain=False, encode_names=vectors is None or options.encode_names)
    if vectors is None and any(uses.values()):
        snapshot.encode([questions[0].question])  # loads the encoder, so that no question's time includes it
        started = clock()
        vectors = snapshot.encode([question.question for question in questions])
        encoded_in = clock() - started
    gold = {gold_id for question in questions for gold_id in question.gold_ids}
    existing: set[str] = set()
    if snapshot.manifest.corpus.documents:  # an empty snapshot has no tables
        existing.update(snapshot.table("documents", columns=["document_id"]).column("document_id").to_pylist())
    return Evaluation(
        version=snapshot.version,
        methods={
            name: _measure(
                name,
                questions,
                _retrieve(
                    snapshot,
                    questions,
                    vectors if uses[name] else None,
                    replace(options, method=name, parameters=settings.get(name, {})),
                ),
                ks,
                clock,
                tokens,
                encoding=encoded_in if uses[name] else 0.0,
                warm=1 if options.rerank is not None else WARM,  # a reranker may cost money
            )
            for name in _one_by_one(names)
        },
        gold_ids=len(gold),
        unknown_gold_ids=len(gold - existing),
        statistics={
            family.statistics.key: statistics
            for family in families_of(snapshot.manifest)
            if family.statistics is not None and family.statistics.evaluated
            if (statistics := load(family.statistics.module).statistics(snapshot))
        },
    )


def _one_by_one(methods: Sequence[str]) -> Iterator[str]:
    """Yield the methods, and report the progress before each method."""
    for number, name in enumerate(methods):
        report_progress(number, len(methods), Items(number, len(methods), "method"))
        yield name


def found_documents(
    snapshot: Snapshot, questions: Sequence[Question], method: str, k: int, vectors: Vectors | None
) -> list[list[str]]:
    """List up to k distinct documents that a method returns for each question, best first, without access control.

    vectors: the questions' vectors, ``(n_questions, d) float32``; None for a method that uses none.
    """
    uses_vectors = snapshot.retriever(method).uses_vectors
    options = RetrievalOptions(method=method, explain=False, principals=UNRESTRICTED, encode_names=True)
    retrieve = _retrieve(snapshot, questions, vectors if uses_vectors else None, options)
    contexts = [hits for _, batch in _in_batches(retrieve, len(questions), k) for hits in batch]
    return [evidence_documents(hits)[:k] for hits in contexts]


def _measure(
    method: str,
    questions: Sequence[Question],
    retrieve: _Retrieve,
    ks: Sequence[int],
    clock: Callable[[], float],
    tokens: int | None,
    *,
    encoding: float,
    warm: int,
) -> MethodResult:
    """Measure a method's recall and speed. encoding: seconds spent encoding. warm: the number of warm-up questions."""
    depth = ks[-1]
    for count in sorted({1, warm}):  # opens the method, maps arrays and reads tables, also in helper processes
        retrieve(range(min(len(questions), count)), depth)
    seconds = 0.0
    each: list[QuestionResult] = []
    counted: list[list[int | None]] = []
    for took, contexts in _in_batches(retrieve, len(questions), depth, clock, tokens):
        seconds += took
        batch = questions[len(each) : len(each) + len(contexts)]
        share = 1000 * took / len(contexts)
        each += [_result(method, question, hits, ks, share) for question, hits in zip(batch, contexts, strict=True)]
        counted += [[hit.tokens for hit in hits[: _enough(hits, depth)]] for hits in contexts]
    recalls = {k: [result.recall[k] for result in each] for k in ks}
    by_type: dict[str, list[int]] = {}
    for i, question in enumerate(questions):
        if question.type is not None:
            by_type.setdefault(question.type, []).append(i)
    read = [sum(n for n in row if n is not None) for row in counted]
    return MethodResult(
        questions=len(questions),
        recall={k: _mean(values) for k, values in recalls.items()},
        tokens_per_question=None if any(None in row for row in counted) else _mean(read),
        milliseconds_per_question=1000 * seconds / len(questions),
        encode_milliseconds_per_question=1000 * encoding / len(questions),
        types={
            kind: (len(rows), {k: _mean([values[i] for i in rows]) for k, values in recalls.items()})
            for kind, rows in sorted(by_type.items())
        },
        each=tuple(each),
    )


def _result(
    method: str, question: Question, hits: Sequence[Hit], ks: Sequence[int], milliseconds: float
) -> QuestionResult:
    documents = evidence_documents(hits)
    return QuestionResult(
        method=method,
        id=question.id,
        question=question.question,
        type=question.type,
        gold_ids=question.gold_ids,
        ranks=ranks_of(question.gold_ids, documents),
        recall={k: recall(question.gold_ids, documents, k) for k in ks},
        hits=tuple(HitReference(hit.kind, hit.id, hit.document_ids, hit.score, hit.tokens) for hit in hits),
        milliseconds=milliseconds,
    )


def _retrieve(
    snapshot: Snapshot, questions: Sequence[Question], vectors: Vectors | None, options: RetrievalOptions
) -> _Retrieve:
    """Return a function that retrieves the k best hits of some questions, selected by index."""

    def retrieve(chosen: Sequence[int], k: int) -> list[list[Hit]]:
        chosen_vectors = None if vectors is None else vectors[list(chosen)]
        texts = [questions[i].question for i in chosen]
        return snapshot.retrieve_batch(texts, options=options, k=k, vectors=chosen_vectors)

    return retrieve


def _in_batches(
    retrieve: _Retrieve,
    questions: int,
    depth: int,
    clock: Callable[[], float] = time.perf_counter,
    tokens: int | None = None,
) -> Iterator[tuple[float, list[list[Hit]]]]:
    """Yield the seconds of each batch's first retrieval, and each question's hits up to ``depth`` documents.

    If the hits of a question have fewer documents, more hits are retrieved. tokens: see ``_enough``.
    """
    for first in range(0, questions, BATCH):
        chosen = range(first, min(first + BATCH, questions))
        started = clock()
        contexts = dict(zip(chosen, retrieve(chosen, depth), strict=True))
        took = clock() - started
        short, retrieved = list(chosen), depth
        while short := [i for i in short if len(contexts[i]) == retrieved and not _enough(contexts[i], depth, tokens)]:
            retrieved *= 2
            contexts.update(zip(short, retrieve(short, retrieved), strict=True))
        yield took, [hits[: _enough(hits, depth, tokens)] for hits in contexts.values()]


def _enough(hits: Sequence[Hit], documents: int, tokens: int | None = None) -> int | None:
    """Return how many first hits reach this many documents, and tokens if all are counted; None if all are too few."""
    seen: set[str] = set()
    read = 0
    for number, hit in enumerate(hits, start=1):
        seen.update(evidence_documents([hit]))
        tokens = None if hit.tokens is None else tokens
        read += hit.tokens or 0
        if len(seen) >= documents and (tokens is None or read >= tokens):
            return number
    return None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _named(means: dict[int, float]) -> dict[str, float]:
    return {f"recall@{k}": mean for k, mean in means.items()}
