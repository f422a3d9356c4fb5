"""Stage `lsh_summaries`: the summaries of a group of segments (EraRAG, Algorithm 1).

Summaries are the dearest rows of a build. A node's id hashes all that its summary is made of, so a row that an earlier
part holds under that id is copied, whatever has become of its neighbours; a stand-in is not. `lsh_vectors` makes their
vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from indexmill.models.llm import Request
from schemas.tables import LSH_SEGMENTS, LSH_SUMMARIES, PASSAGES, conform
from storage.tables import read_table
from tasks.core.encoder import tokeniser_of
from tasks.core.estimate import Estimate, LlmUse, Range, Rows
from tasks.core.stage import Input, Inputs, Output, Outputs, Stage
from tasks.llm.ask import Answer, ask
from tasks.llm.prompts import Prompt
from tasks.stages.embed.embed import row_key
from tasks.stages.embed.known_rows import KnownRows
from tasks.stages.split.node_texts import texts_of
from tasks.stages.write.summarise import TASK, Extractive, most_output, request, said

__all__ = ["STAGE", "estimate"]

_LONGEST = 32
"""Bytes of a summary for each token asked for: a model that does not keep to it is cut at less."""


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


def _compute(inputs: Inputs[Any]) -> Outputs:
    settings = inputs.settings
    segments = list(_Segment.all_of(inputs.table("segments", LSH_SEGMENTS)))
    known = KnownRows(inputs, LSH_SUMMARIES, "node_id")
    held = known.rows([one.node for one in segments])
    missing = [one for one in segments if one.node not in held]
    made, asked = _made(inputs, missing) if missing else ([], {})
    counts = tokeniser_of(inputs).count_tokens([text for text, _ in made]).tolist() if made else []
    for one, (text, stand_in), tokens in zip(missing, made, counts, strict=True):
        held[one.node] = {
            "node_id": one.node,
            "layer": settings["layer"],
            "text": text,
            "tokens": tokens,
            "digest": row_key(text).hex(),
            "stand_in": stand_in,
        }
    rows = [held[one.node] for one in segments]
    stand_ins = sum(row["stand_in"] for row in rows)
    return Outputs(
        tables={"summaries": conform(pa.Table.from_pylist(rows, LSH_SUMMARIES), LSH_SUMMARIES)},
        counts={
            "summaries_made": len(missing),
            "summaries_reused": len(segments) - len(missing),
            "stand_ins": stand_ins,
            **asked,
        },
        failed=stand_ins,
        texts=len(segments),
    )


def _made(inputs: Inputs[Any], missing: Sequence[_Segment]) -> tuple[list[tuple[str, bool]], Mapping[str, int]]:
    """The summary of each segment, and whether it is a stand-in; counts of what a model was asked."""
    settings = inputs.settings
    found = _texts(inputs, missing)
    texts = [[found[child] for child in one.children] for one in missing]
    tokens: int = settings["summariser"]["tokens"]
    extractive = Extractive(tokens, settings["language"])
    if settings["summariser"]["backend"] == "extractive":
        return [(extractive.summary(own), False) for own in texts], {}
    asked = ask(inputs.store, settings["asking"], _questions(inputs, missing, texts), run_id=inputs.job.run_id)
    summaries = [said(one.value, tokens) if isinstance(one, Answer) else "" for one in asked.results]
    return [
        (summary or extractive.summary(own), not summary) for summary, own in zip(summaries, texts, strict=True)
    ], asked.counts


def _questions(inputs: Inputs[Any], missing: Sequence[_Segment], texts: Sequence[Sequence[str]]) -> list[Request]:
    """What a model is asked for some segments, whose children have these texts."""
    asked: Prompt = inputs.settings["prompt"]
    tokens: int = inputs.settings["summariser"]["tokens"]
    return [
        request(own, tokens, asked, about=one.children, makes=one.node) for one, own in zip(missing, texts, strict=True)
    ]


def _requests(inputs: Inputs[Any]) -> list[Request]:
    """What the part will ask a model for: the summaries that no earlier part holds."""
    if inputs.settings["summariser"]["backend"] == "extractive":
        return []
    _, missing = _counted(inputs)
    found = _texts(inputs, missing)
    return _questions(inputs, missing, [[found[child] for child in one.children] for one in missing])


def _counted(inputs: Inputs[Any]) -> tuple[int, list[_Segment]]:
    """How many segments there are, and those whose summaries no earlier part holds."""
    segments = list(_Segment.all_of(inputs.table("segments", LSH_SEGMENTS)))
    held = KnownRows(inputs, LSH_SUMMARIES, "node_id").rows([one.node for one in segments])
    return len(segments), [one for one in segments if one.node not in held]


def _texts(inputs: Inputs[Any], segments: Sequence[_Segment]) -> dict[str, str]:
    """The texts of all children, by id."""
    wanted: dict[str, list[str]] = {}
    for one in segments:
        for child, shard in zip(one.children, one.shards, strict=True):
            wanted.setdefault(shard, []).append(child)
    found: dict[str, str] = {}
    for shard, children in sorted(wanted.items()):
        found.update(texts_of(inputs, inputs.settings["texts"][shard], pa.array(children, pa.string())))
    return found


def estimate(inputs: Inputs[Any], expected: Mapping[str, Range]) -> Estimate:
    """Bounds of what has to be summarised, exact where the segments are known, and what a model is asked for it.

    A call that is repeated or repaired counts once.
    """
    settings = inputs.settings
    rows = expected.get("segments")
    missing: list[_Segment] | None = None
    if not isinstance(rows, Rows):
        count, missing = _counted(inputs)
        rows = Rows(count, count, Range.exactly(len(missing)))
    elif not inputs.job.reuse:
        rows = Rows(rows.low, rows.high, Range(rows.low, rows.high))
    elif rows.fresh == Range(rows.low, rows.high):  # other bounds, other hyperplanes: some may be what they were
        rows = Rows(rows.low, rows.high, Range(0, rows.high))
    most = rows.high * (_LONGEST * settings["summariser"]["tokens"] + 128) + 8192
    return Estimate(
        bytes={"summaries": Range(0, most)},
        rows={"summaries": rows},
        llm=_llm_use(inputs, rows, missing) if settings["summariser"]["backend"] != "extractive" else (),
    )


def _llm_use(inputs: Inputs[Any], rows: Rows, missing: Sequence[_Segment] | None) -> tuple[LlmUse, ...]:
    """What a model is asked for the rows that no earlier part holds; the ledger may have answers to all of it."""
    settings = inputs.settings
    tokens: int = settings["summariser"]["tokens"]
    texts = _tokens_of_texts(inputs, rows, missing)
    instructions = len(request([], tokens, settings["prompt"], about=(), makes="").instructions)
    more = instructions // 2 + 200 + 40 * settings["largest"]  # the schema, and what delimits each text
    answered = bool(inputs.store.list("ledger/"))
    calls = Range(0 if answered else rows.fresh.low, rows.fresh.high)
    return (
        LlmUse(
            model=settings["summariser"]["model"],
            calls=calls,
            input_tokens=Range(
                0 if answered else calls.low * (instructions // 8) + texts.low, calls.high * more + texts.high
            ),
            output_tokens=Range(calls.low, calls.high * most_output(tokens)),
            tasks=(TASK,),
            prompts=Range(rows.fresh.low, rows.fresh.high),
        ),
    )


def _tokens_of_texts(inputs: Inputs[Any], rows: Rows, missing: Sequence[_Segment] | None) -> Range:
    """Bounds of the tokens of all texts to be summarised: half and twice what the embedder counts in passages."""
    settings = inputs.settings
    largest: int = settings["largest"]
    if settings["layer"] > 1:
        children = rows.fresh.high * largest if missing is None else sum(len(one.children) for one in missing)
        return Range(0, 2 * children * most_output(settings["summariser"]["tokens"]))
    tokens: dict[str, int] = {}
    for digests in settings["texts"].values():
        table = read_table(inputs.store, digests["passages"], PASSAGES, columns=("passage_id", "tokens"))
        tokens.update(zip(table["passage_id"].to_pylist(), table["tokens"].to_pylist(), strict=True))
    if missing is not None:
        told = sum(tokens[child] for one in missing for child in one.children)
        return Range(told // 2, 2 * told)
    share = -(-sum(tokens.values()) // settings["groups"])
    anew = rows.fresh.high == rows.high and not inputs.job.reuse
    most = 2 * min(share, rows.fresh.high * largest * max(tokens.values(), default=0))
    return Range(min(share // 2, most) if anew else 0, most)


STAGE = Stage(
    "lsh_summaries",
    version=3,
    compute=_compute,
    libraries=("PyStemmer", "sentencex"),
    estimate=estimate,
    requests=_requests,
    inputs=(Input("segments", LSH_SEGMENTS),),
    outputs=(Output("summaries", LSH_SUMMARIES, artifact="summaries/{label}"),),
    priority=30,
)
