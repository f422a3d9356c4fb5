"""Stage `lsh_summaries`: the summaries of a group of segments (EraRAG, Algorithm 1).

A node's id hashes all inputs of its summary and is the key for reusing summaries of earlier parts. `lsh_vectors` makes
their vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from schemas.config import Configuration
from schemas.tables import PASSAGES
from storage.tables import read_table
from tasks.core.encoder import tokeniser_of
from tasks.core.estimate import Estimate, Expected, Range, Rows
from tasks.core.stage import Input, Output, Outputs, Part, Stage, worker_arg
from tasks.core.writer import Writer
from tasks.families.lsh_tree.tables import LSH_SEGMENTS, LSH_SUMMARIES
from tasks.families.lsh_tree.texts import texts_of
from tasks.llm.prompts import Prompt
from tasks.stages.write.summarise import fingerprint, most_output, plain, text_schema
from tasks.stages.write.text_writer import WriterSettings
from tasks.stages.write.written_rows import Row, WrittenRows

__all__ = ["STAGE", "WRITER", "SummarySettings", "estimate"]


def _fingerprint(configuration: Configuration, asked: Prompt | None) -> dict[str, Any]:
    return fingerprint(configuration, asked, configuration.families.lsh_tree.summary_tokens)


WRITER = Writer("summary", "llm", _fingerprint, lambda configuration: configuration.families.lsh_tree.enabled)


@dataclass(frozen=True, kw_only=True)
class SummarySettings(WriterSettings):
    """texts: where the texts of the children lie (`tasks.families.lsh_tree.texts`). largest: nodes of a segment at
    most. groups: of the layer, how many."""

    layer: int
    summariser: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    texts: Mapping[str, Mapping[str, str]] = worker_arg()
    title_in_passage: bool = worker_arg()
    largest: int = worker_arg()
    groups: int = worker_arg()

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """The fingerprint of the writer."""
        return self.summariser

    def row_space(self) -> Mapping[str, Any]:
        """The fingerprint of the writer, and the tokenizer that counts tokens."""
        return {"tokenizer": self.tokenizer, "summariser": self.summariser}


@dataclass(frozen=True)
class _Segment:
    """The inputs of one summary. children: the shard or group of each child, by id, in order."""

    node: str
    children: Mapping[str, str]


class _Summaries(WrittenRows[SummarySettings, _Segment, str]):
    """The summaries of a group."""

    declared, answer_schema = WRITER, text_schema("summary")
    table, schema, key = "summaries", LSH_SUMMARIES, "node_id"

    def read(self) -> Iterator[_Segment]:
        """The segments, by id."""
        table = self.inputs.table("segments", "node_id", "child_id", "shard")
        for node, rows in groupby(zip(*(column.to_pylist() for column in table.columns), strict=True), itemgetter(0)):
            yield _Segment(node, {child: shard for _, child, shard in rows})

    def key_of(self, item: _Segment) -> str:
        """The id of the node."""
        return item.node

    def load(self, items: Sequence[_Segment]) -> None:
        """Read the texts of all children."""
        by_shard: dict[str, list[str]] = {}
        for item in items:
            for child, shard in item.children.items():
                by_shard.setdefault(shard, []).append(child)
        self._texts: dict[str, str] = {}
        for shard, children in sorted(by_shard.items()):
            self._texts.update(texts_of(self.inputs, self.settings.texts[shard], pa.array(children, pa.string())))

    def content(self, item: _Segment) -> list[str]:
        """The texts of the children."""
        return [self._texts[child] for child in item.children]

    def about(self, item: _Segment) -> Sequence[str]:
        """The children."""
        return list(item.children)

    def parse(self, answer: Mapping[str, Any]) -> str | None:
        """The summary as plain text on one line; None if it is empty."""
        return plain(str(answer["summary"]), 4 * self.tokens) or None

    def fallback(self, item: _Segment) -> str:
        """Sentences of the children."""
        return self.extractive.summary(self.content(item))

    def rows_of(self, item: _Segment, text: str) -> list[Row]:
        """The row of a summary."""
        return [{"layer": self.settings.layer, "text": text}]

    def count_tokens(self, texts: list[str]) -> list[int]:
        """Counted without the encoder, which no summary waits for."""
        counted: list[int] = tokeniser_of(self.inputs).count_tokens(texts).tolist()
        return counted

    def expected_rows(self, rows: Range | None) -> Rows:
        """The number of summaries and of new ones. rows: those of the segments, if these are only planned.

        Where all are new, other bounds or other hyperplanes cut them: some may be what they were.
        """
        if not isinstance(rows, Rows):
            return Rows(len(self.items), len(self.items), Range.exactly(len(self.missing)))
        if not self.inputs.job.reuse:
            return Rows(rows.low, rows.high, Range(rows.low, rows.high))
        return Rows(rows.low, rows.high, Range(0, rows.high)) if rows.fresh == Range(rows.low, rows.high) else rows


def estimate(part: Part[SummarySettings], expected: Expected) -> Estimate:
    """Bounds of the summaries to write, exact if the segments are known, and of the model use for them."""
    summaries, planned = _Summaries(part), expected.get("segments")
    rows = summaries.expected_rows(planned)
    tokens: int = part.settings.summariser["tokens"]
    if not isinstance(planned, Rows):
        use = summaries.use(part.store, summaries.missing)
    else:
        told, more = _tokens_of_texts(part, rows), 200 + 40 * part.settings.largest
        use = summaries.planned_use(
            part.store, rows.fresh, task=WRITER.task, told=told, more=more, answer=most_output(tokens)
        )
    return Estimate(rows={"summaries": rows}, llm=use)


def _tokens_of_texts(part: Part[SummarySettings], rows: Rows) -> Range:
    """Bounds of the tokens of all texts to be summarised: half and twice what the embedder counts in passages."""
    settings = part.settings
    if settings.layer > 1:
        return Range(0, 2 * rows.fresh.high * settings.largest * most_output(settings.summariser["tokens"]))
    tokens: list[int] = []
    for digests in settings.texts.values():
        table = read_table(part.store, digests["passages"], PASSAGES, columns=("tokens",))
        tokens += table["tokens"].to_pylist()
    share = -(-sum(tokens) // settings.groups)
    anew = rows.fresh.high == rows.high and not part.job.reuse
    most = 2 * min(share, rows.fresh.high * settings.largest * max(tokens, default=0))
    return Range(min(share // 2, most) if anew else 0, most)


def _compute(part: Part[SummarySettings]) -> Outputs:
    return _Summaries(part).compute()


STAGE = Stage(
    "lsh_summaries",
    version=3,
    compute=_compute,
    settings=SummarySettings,
    libraries=("PyStemmer", "sentencex"),
    estimate=estimate,
    requests=_Summaries.requests_of,
    inputs=(Input("segments", LSH_SEGMENTS),),
    outputs=(Output("summaries", LSH_SUMMARIES, artifact="summaries/{label}"),),
    priority=30,
)
