"""Stage `lsh_summaries`: the summaries of a group of segments (EraRAG, Algorithm 1).

A node's id hashes all that its summary is made of: it is what summaries of earlier parts are found by. `lsh_vectors`
makes their vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from indexmill.models.llm import Request
from schemas.tables import LSH_SEGMENTS, LSH_SUMMARIES, PASSAGES
from storage.tables import read_table
from tasks.core.encoder import tokeniser_of
from tasks.core.estimate import Estimate, Expected, Range, Rows
from tasks.core.stage import Input, Output, Outputs, Part, Stage, worker_arg
from tasks.families.lsh_tree.summary_writer import WRITER, parse, request
from tasks.stages.split.node_texts import texts_of
from tasks.stages.write.summarise import Extractive, most_output
from tasks.stages.write.text_writer import WriterSettings
from tasks.stages.write.written_rows import Row, WrittenRows

__all__ = ["STAGE", "SummarySettings", "estimate"]


@dataclass(frozen=True, kw_only=True)
class SummarySettings(WriterSettings):
    """texts: where the texts of the children lie (`tasks.stages.split.node_texts`). largest: nodes of a segment at
    most. groups: of the layer, how many."""

    layer: int
    summariser: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    texts: Mapping[str, Mapping[str, str]] = worker_arg()
    title_in_passage: bool = worker_arg()
    largest: int = worker_arg()
    groups: int = worker_arg()

    def row_space(self) -> Mapping[str, Any]:
        """What writes summaries, and what counts their tokens."""
        return {"tokenizer": self.tokenizer, "summariser": self.summariser}


@dataclass(frozen=True)
class _Segment:
    """What one summary is made of: ids and places of children, ordered by id."""

    node: str
    children: tuple[str, ...]
    shards: tuple[str, ...]

    @classmethod
    def all_of(cls, table: pa.Table) -> Iterator[_Segment]:
        """The segments of a table LSH_SEGMENTS, ordered by node id."""
        nodes, children, shards = (table.column(name).to_pylist() for name in ("node_id", "child_id", "shard"))
        starts = [row for row, node in enumerate(nodes) if not row or nodes[row - 1] != node]
        for low, high in zip(starts, [*starts[1:], len(nodes)], strict=True):
            yield cls(nodes[low], tuple(children[low:high]), tuple(shards[low:high]))


class _Summaries(WrittenRows[SummarySettings, _Segment, str]):
    """The summaries of a group."""

    table, schema, key = "summaries", LSH_SUMMARIES, "node_id"

    def __init__(self, part: Part[SummarySettings]) -> None:
        super().__init__(part)
        self._tokens: int = self.settings.summariser["tokens"]
        self._extractive = Extractive(self._tokens, self.settings.language)
        self._texts: dict[str, str] = {}  # of children, by id

    def read(self) -> Iterator[_Segment]:
        """The segments, by id."""
        return _Segment.all_of(self.inputs.table("segments"))

    def key_of(self, item: _Segment) -> str:
        """The id of the node."""
        return item.node

    def load(self, items: Sequence[_Segment]) -> None:
        """Read the texts of all children."""
        wanted: dict[str, list[str]] = {}
        for one in items:
            for child, shard in zip(one.children, one.shards, strict=True):
                if child not in self._texts:
                    wanted.setdefault(shard, []).append(child)
        for shard, children in sorted(wanted.items()):
            found = texts_of(self.inputs, self.settings.texts[shard], pa.array(children, pa.string()))
            self._texts.update(found)

    def request(self, item: _Segment) -> Request:
        """The question for the summary of a segment."""
        assert self.prompt is not None  # noqa: S101 - nothing is asked without one
        return request(self._children(item), self._tokens, self.prompt, about=item.children, makes=item.node)

    def parse(self, answer: Mapping[str, Any]) -> str | None:
        """The summary."""
        return parse(answer, self._tokens) or None

    def fallback(self, item: _Segment) -> str:
        """Sentences of the children."""
        return self._extractive.summary(self._children(item))

    def _children(self, item: _Segment) -> list[str]:
        return [self._texts[child] for child in item.children]

    def rows_of(self, item: _Segment, text: str) -> list[Row]:
        """The row of a summary."""
        return [{"layer": self.settings.layer, "text": text}]

    def tokens(self, texts: list[str]) -> list[int]:
        """Counted without the encoder, which no summary waits for."""
        counted: list[int] = tokeniser_of(self.inputs).count_tokens(texts).tolist()
        return counted

    def expected_rows(self, rows: Range | None) -> Rows:
        """How many summaries there are, and how many of them are new; rows: of the segments, where these are planned.

        Where all are new, other bounds or other hyperplanes cut them: some may be what they were.
        """
        if not isinstance(rows, Rows):
            return Rows(len(self.items), len(self.items), Range.exactly(len(self.missing)))
        if not self.inputs.job.reuse:
            return Rows(rows.low, rows.high, Range(rows.low, rows.high))
        return Rows(rows.low, rows.high, Range(0, rows.high)) if rows.fresh == Range(rows.low, rows.high) else rows


def estimate(part: Part[SummarySettings], expected: Expected) -> Estimate:
    """Bounds of what has to be summarised, exact where the segments are known, and what a model is asked for it."""
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


def _requests(part: Part[SummarySettings]) -> list[Request]:
    summaries = _Summaries(part)
    return summaries.requests(summaries.missing)


STAGE = Stage(
    "lsh_summaries",
    version=3,
    compute=_compute,
    settings=SummarySettings,
    libraries=("PyStemmer", "sentencex"),
    estimate=estimate,
    requests=_requests,
    inputs=(Input("segments", LSH_SEGMENTS),),
    outputs=(Output("summaries", LSH_SUMMARIES, artifact="summaries/{label}"),),
    priority=30,
)
