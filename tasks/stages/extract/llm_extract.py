"""Stage `extract` with a language model: one request per passage, and a second if relations are malformed.

Answers are checked against the passage: an entity whose name does not occur there, and a relation whose ends are not
such entities, are dropped and counted. If the request about a passage is refused, the passage is extracted without a
model. The part is then incomplete, and lists the document among its fallbacks: `--retry-refused` repeats the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from indexmill.models.llm import Request, data_block, object_schema
from indexmill.models.recogniser import names_nothing
from indexmill.text.canonical_names import canonical_name, canonical_words
from schemas.config import LlmSettings
from schemas.tables import MENTIONS, STAND_INS
from tasks.core.estimate import Estimate, Expected, LlmUse, Range
from tasks.core.part_runner import PartSpec
from tasks.core.request_estimate import LedgerAnswers, holding, prompt_bytes, usual_tokens
from tasks.core.run import Run
from tasks.core.stage import Input, Output, Outputs, Part, Stage, worker_arg
from tasks.llm.answer_parsing import list_schema, string
from tasks.llm.ask import LlmAccess, ask
from tasks.llm.llm_recogniser import place_of
from tasks.llm.prompt_results import AskResult, ModelAnswer, PromptRefusal
from tasks.llm.prompts import Prompt
from tasks.stages.extract.extraction_tables import (
    EXTRACTION_OUTPUTS,
    Entity,
    Extraction,
    MentionTexts,
    Relation,
    Unit,
    extracted_of,
)
from tasks.stages.extract.extractive import FINGERPRINT as FALLBACK
from tasks.stages.extract.extractive import STAGE as WITHOUT
from tasks.stages.extract.extractive import ExtractorSettings, extract_all, one_line, shortened
from tasks.stages.split.plain import TEXTS, Texts, changed_texts
from tasks.text.loops import loops

BY_SENTENCES = "by_sentences"
"""The output that lists the documents with a passage extracted without a model, or whose second request was refused."""

_VERSION = 1
"""The version of the answer parser: raise it whenever its result changes."""

_EXTRACT, _RELATIONS = "extract", "relations"
"""The tasks of prompts and answers: the first request about a passage, and the second request to repair relations."""


_MOST_ENTITIES, _MOST_UNITS, _MOST_RELATIONS, _MOST_MALFORMED = 200, 200, 400, 40  # examined per passage
_TITLE, _NAME, _KIND, _WORDING = 200, 200, 60, 400  # maximum characters

_RELATION = {
    "source": string(_NAME),
    "relation": string(_WORDING),
    "target": string(_NAME),
    "type": string(_KIND),
    "description": string(_WORDING),
}
SCHEMA = object_schema(
    entities=list_schema(64, object_schema(name=string(_NAME), type=string(_KIND), description=string(_WORDING))),
    units=list_schema(
        32,
        object_schema(
            text=string(2 * _WORDING),
            entities=list_schema(16, string(_NAME)),
            relations=list_schema(16, object_schema(**_RELATION)),
        ),
    ),
)
MENDED = object_schema(relations=list_schema(_MOST_MALFORMED, object_schema(number={"type": "integer"}, **_RELATION)))

_LEAST_OUTPUT, _MOST_OUTPUT = 1_024, 8_192  # tokens
_PER_TOKEN = (2, 6)  # UTF-8 bytes per token of a prompt, minimum and maximum
_EMPTY = 8  # tokens of an answer that extracts nothing


@dataclass(frozen=True)
class Extractor:
    """The two prompts of the stage; picklable."""

    extract: Prompt
    relations: Prompt

    def fingerprint(self, settings: LlmSettings) -> dict[str, Any]:
        """Return the fingerprint of the extraction. Answers are not part of it: they vary, and are in the ledger."""
        prompts = {_EXTRACT: self.extract[1], _RELATIONS: self.relations[1]}
        return {**settings.shaping(), "version": _VERSION, "prompts": prompts, "fallback": dict(FALLBACK)}

    def request(self, passage_id: str, title: str, text: str) -> Request | None:
        """Return the request about a passage; None if the passage is blank."""
        if not text.strip():
            return None
        shown = [*_title(title), text]
        return self._request(_EXTRACT, self.extract, shown, SCHEMA, _output(shown), passage_id)

    def mend(self, passage_id: str, title: str, text: str, draft: ExtractionDraft) -> Request:
        """Return the request to repair the malformed relations of a passage's answer."""
        lines = (
            f"{number}. {relation['source']} | {relation['relation']} | {relation['target']}"
            for number, (_, relation) in enumerate(draft.malformed, 1)
        )
        names = "\n".join(entity.surface for entity in draft.entities.values())
        shown = [*_title(title), text, names, "\n".join(lines)]
        most = min(256 + 160 * len(draft.malformed), _MOST_OUTPUT)
        return self._request(_RELATIONS, self.relations, shown, MENDED, most, passage_id)

    @staticmethod
    def _request(
        task: str, prompt: Prompt, texts: Sequence[str], schema: Mapping[str, Any], most: int, about: str
    ) -> Request:
        return Request(
            task=task,
            instructions=prompt[0],
            prompt_version=prompt[1],
            content=data_block(texts),
            schema=schema,
            max_output_tokens=most,
            about=(about,),
        )


def extractor_of(prompt: Callable[[str], Prompt]) -> Extractor:
    """Return the extractor with its two prompts. prompt: returns the prompt of a task."""
    return Extractor(prompt(_EXTRACT), prompt(_RELATIONS))


def _title(title: str) -> list[str]:
    shown = title.strip()[:_TITLE]
    return [shown] if shown else []


def _output(texts: Sequence[str]) -> int:
    return min(_LEAST_OUTPUT + 2 * sum(len(text.encode()) for text in texts), _MOST_OUTPUT)


# --- answers ---------------------------------------------------------------------------------------------------------


@dataclass
class ExtractionDraft:
    """A parsed answer: its valid entities and units, and its malformed relations, each with the index of its unit."""

    entities: dict[str, Entity] = field(default_factory=dict)  # by canonical name
    units: list[Unit] = field(default_factory=list)
    malformed: list[tuple[int, Mapping[str, str]]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def read(cls, title: str, text: str, value: Mapping[str, Any]) -> ExtractionDraft:
        """Parse an answer that fits SCHEMA, and check it against its passage.

        Counts: entities_grounded; entities_dropped (the name is neither in the passage nor in the title, or is not a
        name); units_kept and units_dropped; relations_kept; relations_dangling (source or target is not an entity);
        relations_self; and relations_beyond (over the limit of a passage).
        """
        draft = cls()
        draft._ground(title, text, value["entities"])
        units = value["units"]
        draft.counts["units_dropped"] += len(units[_MOST_UNITS:])
        examined = 0
        places: dict[str, int] = {}
        for unit in units[:_MOST_UNITS]:
            statement = _described(unit["text"])
            if not statement or statement in places:
                draft.counts["units_dropped"] += 1
                continue
            place = places[statement] = len(draft.units)
            named = (canonical_name(_clean(name)) for name in unit["entities"][:_MOST_ENTITIES])
            draft.units.append(Unit(statement, tuple(dict.fromkeys(name for name in named if name in draft.entities))))
            room = max(_MOST_RELATIONS - examined, 0)
            examined += len(unit["relations"][:room])
            draft.counts["relations_beyond"] += len(unit["relations"][room:])
            for relation in unit["relations"][:room]:
                draft._take(place, relation)
        draft.counts["units_kept"] += len(draft.units)
        return draft

    def add_mended(self, relations: Sequence[Mapping[str, Any]]) -> None:
        """Add each repaired relation of an answer (schema MENDED) once; count and drop those not repaired."""
        remaining = dict(enumerate(self.malformed, 1))
        self.malformed = []
        for relation in relations[: 2 * _MOST_MALFORMED]:
            if relation["number"] in remaining and self._add(remaining[relation["number"]][0], relation):
                del remaining[relation["number"]]
                self.counts["relations_mended"] += 1
        self.counts["relations_malformed"] += len(remaining)

    def extraction(self) -> Extraction:
        """Return the valid entities and units of the answer."""
        return Extraction(tuple(self.entities.values()), tuple(self.units))

    def _ground(self, title: str, text: str, entities: Sequence[Mapping[str, str]]) -> None:
        words = f" {' '.join(canonical_words(text))} \n {' '.join(canonical_words(title))} "
        for entity in entities[:_MOST_ENTITIES]:
            stated = _clean(entity["name"])
            name = canonical_name(stated) if len(stated) <= _NAME else ""
            surface = _surface(stated, text, title, words) if name and not names_nothing(stated) else ""
            if not surface:
                self.counts["entities_dropped"] += 1
            elif name not in self.entities:
                self.counts["entities_grounded"] += 1
                self.entities[name] = Entity(name, surface, _folded(entity["type"]), _described(entity["description"]))
        self.counts["entities_dropped"] += len(entities[_MOST_ENTITIES:])

    def _take(self, place: int, relation: Mapping[str, str]) -> None:
        """Add a relation to a unit, keep it for the second request, or drop it."""
        parts = {part: shortened(_clean(relation[part]), _WORDING) for part in ("source", "relation", "target")}
        source, target = (canonical_name(parts[end]) for end in ("source", "target"))
        if self._add(place, relation):
            return
        if source and source == target:
            self.counts["relations_self"] += 1
        elif sum(map(bool, parts.values())) < 2 or not self._may_be_mended(parts):
            self.counts["relations_dangling"] += 1
        elif len(self.malformed) < _MOST_MALFORMED:
            self.malformed.append((place, parts))
        else:
            self.counts["relations_beyond"] += 1

    def _add(self, place: int, relation: Mapping[str, str]) -> bool:
        """Add a relation to a unit and return True if it has a wording and links two different entities."""
        source, target = (canonical_name(_clean(relation[end])) for end in ("source", "target"))
        wording = shortened(_clean(relation["relation"]), _WORDING)
        if not wording or source == target or not {source, target} <= self.entities.keys():
            return False
        unit = self.units[place]
        added = Relation(source, target, _folded(relation["type"]), wording, _described(relation["description"]))
        entities = tuple(dict.fromkeys((*unit.entities, source, target)))
        self.units[place] = replace(unit, entities=entities, relations=(*unit.relations, added))
        self.counts["relations_kept"] += 1
        return True

    def _may_be_mended(self, parts: Mapping[str, str]) -> bool:
        """Return whether a relation may be repaired: each end is empty, contains a known name, or is part of one."""
        names = [f" {name} " for name in self.entities]
        for end in ("source", "target"):
            words = " ".join(canonical_words(parts[end]))
            if words and not any(f" {words} " in name or name in f" {words} " for name in names):
                return False
        return bool(names)


def _surface(stated: str, text: str, title: str, words: str) -> str:
    """Return a name as the passage or title writes it, or as stated if `words` contains its words; otherwise empty."""
    for where in (text, title):
        place = place_of(stated, where)
        if place is not None:
            return where[slice(*place)]
    folded = " ".join(canonical_words(stated))
    return stated if folded and f" {folded} " in words else ""


def _described(text: str) -> str:
    """Return a description; empty if it repeats itself."""
    cleaned = _clean(text)
    return "" if loops(cleaned) else cleaned


def _clean(text: str) -> str:
    return shortened(one_line(text.encode("utf-8", "ignore").decode("utf-8").replace("\0", " ")))


def _folded(kind: str) -> str:
    return " ".join(canonical_words(_clean(kind)))[:_KIND].strip()


# --- the stage -------------------------------------------------------------------------------------------------------


class ExtractionResult(NamedTuple):
    """The extraction of each passage, the ids of the documents with fallbacks, and the counts."""

    extractions: list[Extraction]
    stand_ins: list[str]
    counts: Counter[str]


def find_extractions(
    texts: MentionTexts, extractor: Extractor, ask_all: Callable[[Sequence[Request]], list[AskResult]]
) -> ExtractionResult:
    """Return the extraction of each passage, by one request, and a second request if relations are malformed."""
    counts: Counter[str] = Counter()

    def answers(requests: Mapping[int, Request]) -> dict[int, AskResult]:
        return dict(zip(requests, ask_all(list(requests.values())), strict=True)) if requests else {}

    rows = list(_rows(texts))
    requests = {row: extractor.request(*passage) for row, passage in enumerate(rows)}
    first = answers({row: request for row, request in requests.items() if request is not None})
    valid = {row: answer.value for row, answer in first.items() if isinstance(answer, ModelAnswer)}
    drafts = {row: ExtractionDraft.read(*rows[row][1:], value) for row, value in valid.items()}
    second = answers({row: extractor.mend(*rows[row], draft) for row, draft in drafts.items() if draft.malformed})
    for row, answer in second.items():
        drafts[row].add_mended(answer.value["relations"] if isinstance(answer, ModelAnswer) else ())
    failed = first.keys() - drafts.keys()
    fallbacks = extract_all(texts) if failed else []
    for draft in drafts.values():
        counts.update(draft.counts)
    counts["passages_by_sentences"] += len(failed)
    owners = texts.passages["document_id"].to_pylist()
    again = {*failed, *(row for row, answer in second.items() if isinstance(answer, PromptRefusal))}
    extractions = [Extraction()] * len(rows)
    for row in first:
        extractions[row] = fallbacks[row] if row in failed else drafts[row].extraction()
    return ExtractionResult(extractions, sorted({owners[row] for row in again}), counts)


def _rows(texts: Texts) -> Iterator[tuple[str, str, str]]:
    ids, bodies = (texts.passages[name].to_pylist() for name in ("passage_id", "text"))
    return zip(ids, texts.titles(), bodies, strict=True)


@dataclass(frozen=True, kw_only=True)
class LlmExtractSettings(ExtractorSettings):
    """Settings of the `extract` stage. prompts: the two prompts. asking: the settings and quota of model calls."""

    prompts: Extractor = worker_arg()
    asking: LlmAccess = worker_arg()


def drive(run: Run) -> None:
    """Extract units, entities and relations from passages, with a language model or without."""
    stage: Stage[Any] = WITHOUT
    settings = ExtractorSettings(extractor=run.models.extractor())
    if run.configuration.llm.backend != "extractive":
        stage, prompts = STAGE, extractor_of(run.models.prompt)
        settings = LlmExtractSettings(extractor=settings.extractor, prompts=prompts, asking=run.asking(STAGE.name))
    run.make(stage, [PartSpec(label, run.inputs(stage, label), settings) for label in run.labels])


def _compute(part: Part[LlmExtractSettings]) -> Outputs:
    ask_all = partial(ask, part.store, part.settings.asking, run_id=part.job.run_id, counts=part.counts)
    tables, result, changed = _extracted(part, ask_all)
    return Outputs(
        tables=tables,
        counts={**result.counts, "documents_made": changed},
        failed=len(result.stand_ins),
        texts=part.rows_of("documents"),
    )


def _extracted(
    part: Part[LlmExtractSettings], ask_all: Callable[[Sequence[Request]], list[AskResult]]
) -> tuple[dict[str, pa.Table], ExtractionResult, int]:
    """Return the part's tables, the result for the new or changed documents, and the number of these documents."""
    result = ExtractionResult([], [], Counter())

    def find(texts: MentionTexts) -> list[Extraction]:
        nonlocal result
        result = find_extractions(texts, part.settings.prompts, ask_all)
        return result.extractions

    tables, changed = extracted_of(part, find, again=BY_SENTENCES)
    stand_ins = pa.table({"document_id": result.stand_ins}, schema=STAND_INS)
    return {**tables, BY_SENTENCES: stand_ins}, result, changed


def _requests(part: Part[LlmExtractSettings]) -> Iterator[Request]:
    """Return the first request about every passage. A second request depends on the answer, so it is sent directly."""
    texts, *_ = changed_texts(part, again=BY_SENTENCES)
    requests = (part.settings.prompts.request(*row) for row in _rows(texts))
    return (request for request in requests if request is not None)


def estimate(part: Part[LlmExtractSettings], expected: Expected) -> Estimate:
    """Return the number of calls to the model, and bounds on the number of tokens. Reads only the ledger.

    If the ledger has an answer or a refusal for every request, the tables are exact. Otherwise extraction without a
    model replaces the missing answers, so that later stages can be estimated. A passage may need a repaired answer, a
    second request, and a repair of the second answer.
    """
    asking = part.settings.asking
    look_up = LedgerAnswers(part.store, asking.settings.shaping(), retry_refused=asking.retry_refused)
    tables, _, changed = _extracted(part, look_up)
    use = _use(str(asking.settings.model), list(look_up.unknown.values()))
    return holding(part, tables, guessed=bool(look_up.unknown), counts={"documents_made": changed}, llm=(use,))


def _use(model: str, requests: Sequence[Request]) -> LlmUse:
    calls = low = high = most = 0
    sizes = [prompt_bytes(request) for request in requests]
    for request, size in zip(requests, sizes, strict=True):
        times = 4 if request.task == _EXTRACT else 2
        calls += times
        low += size // _PER_TOKEN[1]
        high += times * (size // _PER_TOKEN[0] + request.max_output_tokens)
        most += times * request.max_output_tokens
    passages = sum(request.task == _EXTRACT for request in requests)
    return LlmUse(
        model,
        Range(len(requests), calls),
        Range(low, high),
        Range(len(requests) * _EMPTY, most),
        tasks=(_EXTRACT, _RELATIONS) if passages else (_RELATIONS,),
        prompts=Range.exactly(passages or len(requests)),
        usual=usual_tokens(sum(sizes), sum(request.max_output_tokens for request in requests)),
    )


STAGE = Stage(
    "extract",
    version=WITHOUT.version,
    compute=_compute,
    estimate=estimate,
    requests=_requests,
    inputs=(*TEXTS, Input("mentions", MENTIONS)),
    outputs=(*EXTRACTION_OUTPUTS, Output(BY_SENTENCES, STAND_INS)),
    per_document=True,
    priority=8,
)
