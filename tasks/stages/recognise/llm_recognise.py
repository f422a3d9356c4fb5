"""Stage `recognise` with a language model (ZoomRAG, figure 6); the ledger stores the answers.

If one of a document's requests is refused, the document gets the mentions that the rules find. The part is then
incomplete and lists the document among its fallbacks: the next build asks the model again, unless the refusal is final.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.models.llm import Request
from indexmill.models.recogniser import Mention
from schemas.tables import MENTIONS, STAND_INS
from tasks.core.estimate import Estimate, Expected, LlmUse, Range
from tasks.core.part_runner import PartSpec
from tasks.core.request_estimate import LedgerAnswers, holding, prompt_bytes, usual_tokens
from tasks.core.run import Run
from tasks.core.stage import Output, Outputs, Part, Stage, worker_arg
from tasks.llm.ask import LlmAccess, ask
from tasks.llm.llm_recogniser import TASK, DocumentRange, LlmRecogniser
from tasks.llm.prompt_results import AskResult, ModelAnswer
from tasks.stages.recognise import rules
from tasks.stages.recognise.names_by_language import RulesByLanguage
from tasks.stages.recognise.rules import RecogniserSettings, languages_of, mentions_of, place_mentions
from tasks.stages.resolve.name_counts import UNLINKED_KINDS
from tasks.stages.split.plain import TEXTS, changed_texts

BY_RULES = "by_rules"
"""The output that lists the documents whose mentions were found by the rules."""

_PER_TOKEN = (2, 6)  # UTF-8 bytes per token of a prompt, minimum and maximum
_EMPTY = 4  # tokens of an answer without entities


@dataclass(frozen=True, kw_only=True)
class LlmRecogniseSettings(RecogniserSettings):
    """Settings of the `recognise` stage. asking: the settings and quota of model calls."""

    recogniser: LlmRecogniser = worker_arg()
    asking: LlmAccess = worker_arg()


def drive(run: Run) -> None:
    """Find the entities that documents mention: by a language model, by rules, or by another recogniser."""
    stage: Stage[Any] = rules.STAGE
    fingerprint, chosen = run.models.recogniser(), run.configuration.recognise
    settings = RecogniserSettings(fingerprint=fingerprint, recogniser=chosen.recogniser)
    if chosen.asks_llm:
        recogniser = LlmRecogniser(*run.models.prompt(TASK), run.configuration.llm.shaping())
        asking = run.asking(STAGE.name)
        stage, settings = STAGE, LlmRecogniseSettings(fingerprint=fingerprint, recogniser=recogniser, asking=asking)
    run.make(stage, [PartSpec(label, run.inputs(stage, label), settings) for label in run.labels])


class MentionResult(NamedTuple):
    """The mentions of some documents, the ids of the documents that fell back to the rules, and the counts."""

    mentions: list[list[Mention]]
    by_rules: list[str]
    counts: Counter[str]


def requests_of(documents: pa.Table, recogniser: LlmRecogniser) -> Iterator[list[tuple[DocumentRange, Request]]]:
    """Yield the requests about each document (schema DOCUMENTS). They do not depend on where passages end."""
    for document_id, title, text in _rows(documents):
        pieces = recogniser.requests(title, text)
        yield [(piece, dataclasses.replace(request, about=(document_id,))) for piece, request in pieces]


def find_mentions(
    documents: pa.Table,
    languages: Sequence[str],
    recogniser: LlmRecogniser,
    ask_all: Callable[[Sequence[Request]], list[AskResult]],
) -> MentionResult:
    """Find the mentions in some documents, with one request per piece of a document. languages: of each document."""
    questions = list(requests_of(documents, recogniser))
    requests = [request for of_document in questions for _, request in of_document]
    results = iter(ask_all(requests) if requests else [])
    result = MentionResult([], [], Counter())
    for of_document, language, (document_id, title, text) in zip(questions, languages, _rows(documents), strict=True):
        answers = [(piece, next(results)) for piece, _ in of_document]
        values = [(piece, answer.value) for piece, answer in answers if isinstance(answer, ModelAnswer)]
        if len(values) == len(answers):
            mentions, counts = recogniser.mentions(title, text, values)
            result.counts.update(counts)
        else:
            mentions = RulesByLanguage().recognise(title, text, language)
            result.by_rules.append(document_id)
        result.mentions.append(mentions)
    result.counts["documents_by_rules"] += len(result.by_rules)
    return result


def _rows(documents: pa.Table) -> Iterator[tuple[str, str, str]]:
    return zip(*(documents[name].to_pylist() for name in ("document_id", "title", "text")), strict=True)


def _compute(part: Part[LlmRecogniseSettings]) -> Outputs:
    result = MentionResult([], [], Counter())

    def find(documents: pa.Table, passages: pa.Table, sentences: pa.Table) -> pa.Table:
        nonlocal result
        ask_all = partial(ask, part.store, part.settings.asking, run_id=part.job.run_id, counts=part.counts)
        result = find_mentions(documents, languages_of(documents, passages), part.settings.recogniser, ask_all)
        return place_mentions(documents, passages, sentences, result.mentions)

    mentions, changed = mentions_of(part, find, again=BY_RULES)
    return Outputs(
        tables={"mentions": mentions, BY_RULES: _stand_ins(result.by_rules)},
        counts={**result.counts, "documents_made": changed},
        failed=len(result.by_rules),
        texts=part.rows_of("documents"),
    )


def _requests(part: Part[LlmRecogniseSettings]) -> Iterator[Request]:
    texts, *_ = changed_texts(part, again=BY_RULES)
    for of_document in requests_of(texts.documents, part.settings.recogniser):
        yield from (request for _, request in of_document)


def estimate(part: Part[LlmRecogniseSettings], expected: Expected) -> Estimate:
    """Return the number of calls to the model, and bounds on the number of tokens. Reads only the ledger.

    A document without answers gets the names that the rules find, so that later stages can be estimated.
    """
    recogniser = part.settings.recogniser
    by_rules: list[str] = []
    look_up = LedgerAnswers(part.store, recogniser.llm)

    def find(documents: pa.Table, passages: pa.Table, sentences: pa.Table) -> pa.Table:
        result = find_mentions(documents, languages_of(documents, passages), recogniser, look_up)
        by_rules.extend(result.by_rules)
        placed = place_mentions(documents, passages, sentences, result.mentions)
        unasked = pc.is_in(placed["kind"], pa.array(UNLINKED_KINDS))  # a model returns no dates or numbers
        return placed.filter(pc.invert(unasked)) if look_up.unknown else placed

    mentions, changed = mentions_of(part, find, again=BY_RULES)
    tables = {"mentions": mentions, BY_RULES: _stand_ins(by_rules)}
    use = _use(str(recogniser.llm["model"]), list(look_up.unknown.values()))
    return holding(part, tables, guessed=bool(look_up.unknown), counts={"documents_made": changed}, llm=(use,))


def _stand_ins(document_ids: Sequence[str]) -> pa.Table:
    return pa.table({"document_id": list(document_ids)}, schema=STAND_INS)


def _use(model: str, requests: Sequence[Request]) -> LlmUse:
    """Return bounds on the calls and tokens: each request takes one call, or two if its answer must be repaired."""
    calls, sizes = len(requests), [prompt_bytes(request) for request in requests]
    most = sum(request.max_output_tokens for request in requests)
    return LlmUse(
        model,
        Range(calls, 2 * calls),
        Range(
            sum(size // _PER_TOKEN[1] for size in sizes),
            sum(2 * (size // _PER_TOKEN[0]) for size in sizes) + most,
        ),
        Range(calls * _EMPTY, 2 * most),
        tasks=(TASK,),
        prompts=Range.exactly(calls),
        usual=usual_tokens(sum(sizes), most),
    )


STAGE = Stage(
    "recognise",
    version=rules.STAGE.version,
    libraries=rules.STAGE.libraries,
    compute=_compute,
    estimate=estimate,
    requests=_requests,
    inputs=TEXTS,
    outputs=(
        Output("mentions", MENTIONS, artifact="mentions/{label}"),
        Output(BY_RULES, STAND_INS),
    ),
    per_document=True,
    priority=10,
)
