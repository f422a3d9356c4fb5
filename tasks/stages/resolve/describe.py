"""Stage `describe`: what the passages say of an entity, and of two that are related, put together into one text.

ArchRAG, section 3.1.1: entities and relations that appear repeatedly are "consolidated by the LLM to generate a
complete description". Few pieces are joined (ours): they say all there is, and nobody is asked. Of more, the model of
`llm` makes one text, or, where there is none, their central sentences do. A part is made of the pieces of one entity
shard; what an earlier part made of the same pieces is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.models.llm import Request
from schemas.tables import CONSOLIDATED, DESCRIBED, PIECES, RELATED, RELATION_PIECES, conform
from storage.tables import read_table
from tasks.core.encoder import encoder_of
from tasks.core.estimate import Estimate, LlmUse, Range, Rows
from tasks.core.request_estimate import foreseen
from tasks.core.shards import id_hashes
from tasks.core.stage import Inputs, Outputs, Stage
from tasks.llm.ask import Answer, ask
from tasks.stages.embed.embed import TEXT_VECTORS, Vectors, embed_texts, keys_array, missing_texts, row_key
from tasks.stages.resolve import description_writer as describe_llm
from tasks.stages.resolve.consolidate import Many, Told, entities_of, entity_text, joined, relations_of
from tasks.stages.split.node_texts import is_table
from tasks.stages.write.summarise import Extractive

__all__ = ["STAGE", "entity_text", "estimate"]


class _Known:
    """What earlier parts hold: texts by what they are made of, token counts by digest, vectors by text."""

    def __init__(self, inputs: Inputs) -> None:
        self.texts: dict[str, str] = {}
        self.tokens: dict[str, int] = {}
        packs = []
        for digest in inputs.job.reuse:
            if not is_table(inputs, digest):
                packs.append(inputs.pack(digest))
                continue
            names = pq.read_schema(inputs.path(digest)).names
            if names == CONSOLIDATED.names:
                table = read_table(inputs.store, digest, CONSOLIDATED)
                held = dict(zip(*(table[name].to_pylist() for name in CONSOLIDATED.names), strict=True))
                self.texts = held | self.texts  # the first that has one
            elif names == DESCRIBED.names:
                table = read_table(inputs.store, digest, DESCRIBED, columns=("digest", "tokens"))
                self.tokens |= dict(zip(table["digest"].to_pylist(), table["tokens"].to_pylist(), strict=True))
        self.vectors = Vectors((pack["text_keys"], pack["vectors"]) for pack in packs)


@dataclass
class _Shard:
    """What a part is made of, as far as it is known without asking anybody."""

    entities: Told
    relations: Told
    known: _Known

    @classmethod
    def of(cls, inputs: Inputs) -> _Shard:
        settings = inputs.settings
        return cls(
            entities_of(inputs.table("pieces", PIECES), settings),
            relations_of(inputs.table("relation_pieces", RELATION_PIECES), settings),
            _Known(inputs),
        )

    def all(self) -> Iterator[tuple[Told, Many]]:
        """The pieces that are too many, each with the rows that they belong to."""
        for told in (self.entities, self.relations):
            for one in told.many:
                yield told, one

    def missing(self) -> list[Many]:
        """Those of which no earlier part holds the text; of equal ones the first."""
        found = {one.made_of: one for _, one in reversed([*self.all()]) if one.made_of not in self.known.texts}
        return [one for _, one in self.all() if found.pop(one.made_of, None) is not None]

    def fill(self, made: Mapping[str, tuple[str, bool]]) -> dict[str, str]:
        """Put the texts in their rows, made ones with whether they are stand-ins; returns those worth keeping."""
        kept: dict[str, str] = {}
        for told, one in self.all():
            text, stand_in = made.get(one.made_of) or (self.known.texts[one.made_of], False)
            told.texts[one.row], told.stand_ins[one.row] = text, stand_in
            if not stand_in:
                kept[one.made_of] = text
        return kept


def _compute(inputs: Inputs) -> Outputs:
    settings = inputs.settings
    shard = _Shard.of(inputs)
    missing = shard.missing()
    made, asked = _made(inputs, missing) if missing else ({}, {})
    kept = shard.fill(made)
    dimension = settings["encoder"]["dimension"]
    texts = _texts(shard.entities)
    vectors, keys, computed = embed_texts(
        texts, lambda some: encoder_of(inputs).encode(some), shard.known.vectors, dimension
    )
    hashes = id_hashes(shard.entities.rows["entity_id"].to_list())
    packs: dict[str, dict[str, NDArray[Any]]] = {}
    pack = {"keys": hashes, "text_keys": keys_array(keys), "vectors": vectors}
    packs["description_vectors"] = TEXT_VECTORS.conform(pack)
    if settings["names"]:
        own, own_keys, more = embed_texts(
            shard.entities.rows["name"].to_list(),
            lambda some: encoder_of(inputs).encode(some),
            shard.known.vectors,
            dimension,
        )
        pack = {"keys": hashes, "text_keys": keys_array(own_keys), "vectors": own}
        packs["name_vectors"] = TEXT_VECTORS.conform(pack)
        computed += more
    stand_ins = sum(shard.entities.stand_ins) + sum(shard.relations.stand_ins)
    return Outputs(
        tables={
            "described": _described(inputs, shard, texts, [key.hex() for key in keys]),
            "related": _related(shard.relations),
            "consolidated": _consolidated(kept),
        },
        packs=packs,
        counts={
            "entities_described": len(texts),
            "relations_described": len(shard.relations.texts),
            "descriptions_made": len(missing),
            "descriptions_reused": len({one.made_of for _, one in shard.all()}) - len(missing),
            "stand_ins": stand_ins,
            "vectors_made": computed,
            "vectors_reused": len(texts) * (1 + settings["names"]) - computed,
            **asked,
        },
        failed=stand_ins,
        texts=sum(1 for _ in shard.all()),
    )


def _texts(entities: Told) -> list[str]:
    columns = (entities.rows[name].to_list() for name in ("surface", "type"))
    return [entity_text(*one) for one in zip(*columns, entities.texts, strict=True)]


def _described(inputs: Inputs, shard: _Shard, texts: Sequence[str], digests: Sequence[str]) -> pa.Table:
    tokens = [shard.known.tokens.get(digest) for digest in digests]
    new = [row for row, count in enumerate(tokens) if count is None]
    counted = encoder_of(inputs).count_tokens([texts[row] for row in new]).tolist() if new else []
    for row, count in zip(new, counted, strict=True):
        tokens[row] = count
    rows = shard.entities.rows.select("entity_id", "name", "surface", "type", "pieces", "passages").with_columns(
        description=pl.Series(shard.entities.texts, dtype=pl.String),
        tokens=pl.Series(tokens, dtype=pl.Int32),
        digest=pl.Series(digests, dtype=pl.String),
        stand_in=pl.Series(shard.entities.stand_ins, dtype=pl.Boolean),
    )
    return conform(rows.to_arrow(), DESCRIBED)


def _related(relations: Told) -> pa.Table:
    rows = relations.rows.select("source", "target", "kind", "relations").with_columns(
        description=pl.Series(relations.texts, dtype=pl.String),
        digest=pl.Series([row_key(text).hex() for text in relations.texts], dtype=pl.String),
        stand_in=pl.Series(relations.stand_ins, dtype=pl.Boolean),
    )
    return conform(rows.to_arrow(), RELATED)


def _consolidated(kept: Mapping[str, str]) -> pa.Table:
    rows = [{"made_of": made_of, "text": text} for made_of, text in sorted(kept.items())]
    return conform(pa.Table.from_pylist(rows, CONSOLIDATED), CONSOLIDATED)


def _made(inputs: Inputs, missing: Sequence[Many]) -> tuple[dict[str, tuple[str, bool]], Mapping[str, int]]:
    """By what it is made of, the text of each, and whether it is a stand-in; counts of what a model was asked."""
    settings = inputs.settings
    tokens: int = settings["description"]["tokens"]
    if settings["prompt"] is None:
        extractive = Extractive(tokens, settings["language"])
        return {one.made_of: (extractive.summary(one.texts), False) for one in missing}, {}
    asked = ask(inputs.store, settings["asking"], _questions(settings, missing), run_id=inputs.job.run_id)
    texts = [describe_llm.said(one.value, tokens) if isinstance(one, Answer) else "" for one in asked.results]
    return {
        one.made_of: (text or joined(one.all, tokens), not text) for one, text in zip(missing, texts, strict=True)
    }, asked.counts


def _questions(settings: Mapping[str, Any], missing: Sequence[Many]) -> list[Request]:
    tokens: int = settings["description"]["tokens"]
    return [
        describe_llm.request(one.named, one.texts, tokens, settings["prompt"], about=one.about, makes=one.made_of)
        for one in missing
    ]


def _requests(inputs: Inputs) -> list[Request]:
    """What the part will ask a model for: the descriptions that no earlier part holds."""
    return [] if inputs.settings["prompt"] is None else _questions(inputs.settings, _Shard.of(inputs).missing())


def estimate(inputs: Inputs, expected: Mapping[str, Range]) -> Estimate:
    """What has to be embedded, and asked where the ledger has no answer, from the pieces, which are known."""
    settings = inputs.settings
    shard = _Shard.of(inputs)
    missing = shard.missing()
    new = {one.made_of: ("", False) for one in missing}
    shard.fill(new)
    entities, count = shard.entities, len(shard.entities.texts)
    unknown = {one.row for one in entities.many if one.made_of in new}
    texts = _texts(entities)
    keys = [row_key(text) for row, text in enumerate(texts) if row not in unknown]
    fresh = len(unknown) + sum(key.hex() not in shard.known.tokens for key in keys)
    made = len(unknown) + len(missing_texts(keys, shard.known.vectors.holds(keys)))
    total = count
    if settings["names"]:
        names = [row_key(name) for name in entities.rows["name"].to_list()]
        made += len(missing_texts(names, shard.known.vectors.holds(names)))
        total += count
    size = TEXT_VECTORS.size({"texts": count, "dimensions": settings["encoder"]["dimension"]})
    most = 8 * settings["description"]["tokens"] * len([*shard.all()])
    text_bytes = sum(len(text.encode("utf-8")) for text in [*texts, *shard.relations.texts])
    tables = Range(0, most + 2 * text_bytes + 512 * (count + len(shard.relations.texts)) + 16_384)
    sizes = dict.fromkeys(("described", "related", "consolidated"), tables)
    sizes |= {name: Range.exactly(size) for name in ("description_vectors", "name_vectors")[: 1 + settings["names"]]}
    rows = Rows(count, count, Range(fresh - len(unknown), fresh))
    pairs = len(shard.relations.texts)
    return Estimate(
        bytes=sizes,
        rows={"described": rows, "description_vectors": rows, "related": Range.exactly(pairs)},
        counts={"vectors_made": made, "vectors_reused": total - made},
        llm=() if settings["prompt"] is None else (_use(inputs, missing),),
    )


def _use(inputs: Inputs, missing: Sequence[Many]) -> LlmUse:
    return foreseen(inputs.store, inputs.settings["asking"], _questions(inputs.settings, missing))


STAGE = Stage(
    "describe",
    version=2,
    compute=_compute,
    libraries=("PyStemmer", "numpy", "polars", "sentencex"),
    estimate=estimate,
    requests=_requests,
)
