"""Stage `lsh_summaries`: the summaries of a group of segments, in blocks (EraRAG, Algorithm 1).

A node's id hashes all inputs of its summary and is the key for reusing summaries of earlier parts. A part makes a group
of blocks (`tasks.families.lsh_tree.blocks`), each with its own table. `lsh_vectors` makes their vectors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.config import Configuration
from schemas.tables import PASSAGES
from storage.table_blobs import read_table
from tasks.core.encoder import tokeniser_of
from tasks.core.estimate import Estimate, Expected, Range, RowRange
from tasks.core.groups import hex_ids, id_bytes, total
from tasks.core.stage import Input, Output, Outputs, Part, Stage, worker_arg
from tasks.core.writer import Writer
from tasks.families.lsh_tree.blocks import NodePlaces
from tasks.families.lsh_tree.tables import LSH_SEGMENTS, LSH_SUMMARIES, LSH_WRITTEN
from tasks.families.lsh_tree.texts import texts_of
from tasks.llm.prompts import Prompt
from tasks.stages.write.summarise import cut, fingerprint, most_output, plain
from tasks.stages.write.text_writer import WriterSettings
from tasks.stages.write.written_rows import Row, WrittenRows

_MOST_ROOM = 8_000
"""The tokens of source texts from which on no segment is shortened for a model's context."""


def _fingerprint(configuration: Configuration, prompt: Prompt | None) -> dict[str, Any]:
    room = configuration.llm.sources_room()
    more = {} if prompt is None or room is None or room >= _MOST_ROOM else {"input_tokens": room}
    return fingerprint(configuration, prompt, configuration.families.lsh_tree.summary_tokens, **more)


WRITER = Writer("summary", "llm", _fingerprint, lambda configuration: configuration.families.lsh_tree.enabled)


@dataclass(frozen=True, kw_only=True)
class SummarySettings(WriterSettings):
    """texts: the digests of the tables with the children's texts (`tasks.families.lsh_tree.texts`).

    largest: the maximum size of a segment. groups: the number of groups in the layer.
    """

    layer: int
    summariser: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    texts: Mapping[str, Mapping[str, str]] = worker_arg()
    title_in_passage: bool = worker_arg()
    largest: int = worker_arg()
    groups: int = worker_arg()

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        return self.summariser

    def row_space(self) -> Mapping[str, Any]:
        return {"tokenizer": self.tokenizer, "summariser": self.summariser}


@dataclass(frozen=True)
class _Segment:
    """The inputs of one summary. block: the block's label. children: each child's shard or block, by child id."""

    node: str
    block: str
    children: Mapping[str, str]


class _Summaries(WrittenRows[SummarySettings, _Segment, str]):
    declared = WRITER
    table, schema, key = "summaries", LSH_SUMMARIES, "node_id"

    def read(self) -> Iterator[_Segment]:
        places = NodePlaces(self.settings.texts)
        for label in self.inputs.labels("segments"):
            pack = self.inputs.pack(f"segments/{label}")
            shards = places.of(pack["children.paths"], pack["children.ids"])
            children = list(zip(hex_ids(pack["children.ids"]), shards, strict=True))
            bounds = pairwise(pack["children.indptr"].tolist())
            for node, (low, high) in zip(hex_ids(pack["ids"]), bounds, strict=True):
                yield _Segment(node, label, dict(children[low:high]))

    def key_of(self, item: _Segment) -> str:
        return item.node

    def load(self, items: Sequence[_Segment]) -> None:
        by_shard: dict[str, list[str]] = {}
        for item in items:
            for child, shard in item.children.items():
                by_shard.setdefault(shard, []).append(child)
        self._texts: dict[str, str] = {}
        for shard, children in sorted(by_shard.items()):
            self._texts.update(texts_of(self.inputs, self.settings.texts[shard], pa.array(children, pa.string())))

    def content(self, item: _Segment) -> list[str]:
        """Return the texts of the children, each cut to its share of the model's context if that is small."""
        texts = [self._texts[child] for child in item.children]
        room = self.writer.get("input_tokens")
        if self.prompt is None or room is None or sum(len(text.encode()) for text in texts) <= 4 * room:
            return texts
        return [cut(text, 4 * room // len(texts)) for text in texts]

    def about(self, item: _Segment) -> Sequence[str]:
        return list(item.children)

    def parse(self, answer: Mapping[str, Any]) -> str | None:
        """Return the summary as plain text on one line; None if it is empty."""
        return plain(str(answer["summary"]), 4 * self.tokens) or None

    def fallback(self, item: _Segment) -> str:
        return self.extractive.summary(self.content(item))

    def rows_of(self, item: _Segment, text: str) -> list[Row]:
        return [{"layer": self.settings.layer, "text": text}]

    def count_tokens(self, texts: list[str]) -> list[int]:
        """Count tokens with the tokeniser alone, so that no summary waits for the encoder."""
        counted: list[int] = tokeniser_of(self.inputs).count_tokens(texts).tolist()
        return counted

    def compute(self) -> Outputs:
        """Compute the part: the rows of each block, and the arrays that later stages need."""
        outputs = super().compute()
        table = outputs.tables[self.table]
        blocks = {item.node: item.block for item in self.items}
        labels = pa.array([blocks[node] for node in table["node_id"].to_pylist()], pa.string())
        tables = {
            f"{self.table}/{label}": table.filter(pc.equal(labels, label)) for label in self.inputs.labels("segments")
        }
        rows = pa.concat_tables([*tables.values(), table.slice(0, 0)])
        written = {
            "digests": id_bytes(rows["digest"]),
            "stand_ins": rows["stand_in"].to_numpy().astype(np.uint8),
        }
        return dataclasses.replace(outputs, tables=tables, packs={"written": written})

    @cached_property
    def fresh(self) -> Mapping[str, tuple[int, int]]:
        missing = {item.node for item in self.missing}
        counts = dict.fromkeys(self.inputs.labels("segments"), (0, 0))
        for item in self.items:
            every, new = counts[item.block]
            counts[item.block] = every + 1, new + (item.node in missing)
        return counts

    def rows_of_block(self, label: str, planned: Range | None) -> RowRange:
        """Return how many summaries a block has, and how many are new. planned: the expected segments; None if known.

        If all are new, bounds or hyperplanes have changed, and some summaries may still be the same.
        """
        if not isinstance(planned, RowRange):
            every, new = self.fresh[label]
            return RowRange(every, every, Range.exactly(new))
        if not self.inputs.job.reuse:
            return RowRange(planned.low, planned.high, Range(planned.low, planned.high))
        if planned.fresh == Range(planned.low, planned.high):
            return RowRange(planned.low, planned.high, Range(0, planned.high))
        return planned


def estimate(part: Part[SummarySettings], expected: Expected) -> Estimate:
    """Estimate the summaries to write, exact if the segments are known, and the model use for them."""
    summaries = _Summaries(part)
    planned = {label: expected.get(f"segments/{label}") for label in part.labels("segments")}
    blocks = {f"summaries/{label}": summaries.rows_of_block(label, rows) for label, rows in planned.items()}
    rows = total(blocks.values())
    tokens: int = part.settings.summariser["tokens"]
    if not any(isinstance(one, RowRange) for one in planned.values()):
        use = summaries.use(part.store, summaries.missing)
    else:
        use = summaries.planned_use(
            part.store,
            rows.fresh,
            task=WRITER.task,
            source_tokens=_tokens_of_texts(part, rows),
            usual=((rows.fresh.low + rows.fresh.high) / 2, 0.75 * part.settings.largest * tokens),
            more=200 + 40 * part.settings.largest,
            answer=most_output(tokens),
        )
    return Estimate(rows={**blocks, "written": rows}, llm=use)


def _tokens_of_texts(part: Part[SummarySettings], rows: RowRange) -> Range:
    """Return bounds of the tokens of all texts to summarise.

    For passages, these are half and twice the embedder's count; the lower bound is 0 if summaries may be reused.
    """
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


STAGE = Stage(
    "lsh_summaries",
    version=4,
    compute=lambda part: _Summaries(part).compute(),
    libraries=("PyStemmer", "sentencex"),
    estimate=estimate,
    requests=_Summaries.requests_of,
    inputs=(Input("segments", LSH_SEGMENTS, each=True),),
    outputs=(
        Output("summaries", LSH_SUMMARIES, artifact="summaries/{label}", each=True),
        Output("written", LSH_WRITTEN),
    ),
    priority=30,
)
