"""Stage `describe`: one text for each entity and each related pair, from what the passages say about them.

ArchRAG, section 3.1.1: entities and relations that appear repeatedly are "consolidated by the LLM to generate a
complete description". Here, a few pieces are simply joined: nothing is lost, and no model is called. More
pieces are summarised by the model of `llm` or, without one, by their central sentences. A part is made from the pieces
of one entity shard; it copies the texts that an earlier part made from the same pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from indexmill.models.llm import Request
from schemas.tables import CONSOLIDATED, DESCRIBED, PIECES, RELATED, RELATION_PIECES, conform
from tasks.core.encoder import EncoderSettings, encoder_of
from tasks.core.estimate import Estimate, Expected, Range, RowRange
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.shards import id_hashes
from tasks.core.stage import Input, Output, Outputs, Part, Stage
from tasks.stages.embed.embed import TEXT_VECTORS, Vectors, missing_texts, row_key
from tasks.stages.resolve.consolidate import DescribedRows, Many, entities_of, entity_text, relations_of
from tasks.stages.resolve.description_writer import WRITER, DescriptionWriter
from tasks.stages.write.text_writer import WriterSettings, worker_settings
from tasks.stages.write.written_rows import text_vectors


@dataclass(frozen=True, kw_only=True)
class DescribeSettings(EncoderSettings, WriterSettings):
    """Settings of the `describe` stage. describer: the writer's fingerprint. names: whether to embed names.

    description: the configuration's settings of that name.
    """

    description: Mapping[str, Any]
    describer: Mapping[str, Any]
    names: bool

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """The fingerprint of the writer."""
        return self.describer

    @property
    def tokens(self) -> int:
        """The approximate number of tokens of a description."""
        return int(self.description["tokens"])


class _PreviousRows:
    """The reusable rows of earlier parts: texts by `made_of`, token counts by digest, vectors by text."""

    def __init__(self, part: Part[Any]) -> None:
        self.texts: dict[str, str] = {}
        self.tokens: dict[str, int] = {}
        for table in part.reusable_tables(CONSOLIDATED):
            texts = dict(zip(*(table[name].to_pylist() for name in CONSOLIDATED.names), strict=True))
            self.texts = texts | self.texts  # the first table wins
        for table in part.reusable_tables(DESCRIBED, "digest", "tokens"):
            self.tokens |= dict(zip(table["digest"].to_pylist(), table["tokens"].to_pylist(), strict=True))
        self.vectors = Vectors((pack["text_keys"], pack["vectors"]) for pack in part.reusable_packs())


@dataclass
class _Shard:
    """The inputs of a part and the reusable texts of earlier parts."""

    entities: DescribedRows
    relations: DescribedRows
    reusable: _PreviousRows

    @classmethod
    def of(cls, part: Part[DescribeSettings]) -> _Shard:
        by = {"description": part.settings.description, "describer": part.settings.describer}
        return cls(
            entities_of(part.table("pieces"), by),
            relations_of(part.table("relation_pieces"), by),
            _PreviousRows(part),
        )

    def all(self) -> Iterator[tuple[DescribedRows, Many]]:
        """Yield the pieces to summarise, each with the rows that they belong to."""
        for rows in (self.entities, self.relations):
            for item in rows.many:
                yield rows, item

    def missing(self) -> list[Many]:
        """Return the texts to write: those that no earlier part has, and only the first of equal items."""
        new = {item.made_of: item for _, item in reversed([*self.all()]) if item.made_of not in self.reusable.texts}
        return [item for _, item in self.all() if new.pop(item.made_of, None) is not None]

    def fill(self, new: Mapping[str, tuple[str, bool]]) -> dict[str, str]:
        """Put new and reused texts in their rows. Returns the texts by `made_of`, without fallbacks.

        new: by `made_of`, each new text, and whether it is a fallback.
        """
        consolidated: dict[str, str] = {}
        for rows, item in self.all():
            text, stand_in = new.get(item.made_of) or (self.reusable.texts[item.made_of], False)
            rows.texts[item.row], rows.stand_ins[item.row] = text, stand_in
            if not stand_in:
                consolidated[item.made_of] = text
        return consolidated


def drive(run: Run) -> None:
    """Make the descriptions of entities and of related pairs."""
    setting = run.configuration.resolve
    writer = run.models.writer(WRITER)
    settings = DescribeSettings(
        **run.opened_encoder.settings,
        description=setting.description.model_dump(include={"most_pieces", "tokens", "input_tokens"}),
        describer=writer.fingerprint,
        names=setting.same_as.enabled,
        **worker_settings(run, STAGE, writer),
    )
    shards: dict[str, dict[str, str]] = {}
    for output, digest in sorted(run.outputs("pieces", "relation_pieces").items()):
        name, _, label = output.partition("/")
        shards.setdefault(label, {})[name] = digest
    run.make(STAGE, [PartSpec(label, inputs, settings) for label, inputs in sorted(shards.items())])


def _compute(part: Part[DescribeSettings]) -> Outputs:
    settings = part.settings
    shard = _Shard.of(part)
    missing = shard.missing()
    written = DescriptionWriter(settings).write(part, missing)
    made_of = (item.made_of for item in missing)
    consolidated = shard.fill(dict(zip(made_of, zip(written.texts, written.fallbacks, strict=True), strict=True)))
    dimension = settings.dimension
    texts = _texts(shard.entities)
    arrays, computed = text_vectors(part, texts, shard.reusable.vectors, dimension)
    hashes = id_hashes(shard.entities.rows["entity_id"].to_list())
    packs = {"description_vectors": {"keys": hashes, **arrays}}
    if settings.names:
        name_arrays, more = text_vectors(part, shard.entities.rows["name"].to_list(), shard.reusable.vectors, dimension)
        packs["name_vectors"] = {"keys": hashes, **name_arrays}
        computed += more
    stand_ins = sum(shard.entities.stand_ins) + sum(shard.relations.stand_ins)
    return Outputs(
        tables={
            "described": _described(part, shard, texts),
            "related": _related(shard.relations),
            "consolidated": _consolidated(consolidated),
        },
        packs=packs,
        counts={
            "entities_described": len(texts),
            "relations_described": len(shard.relations.texts),
            "descriptions_made": len(missing),
            "descriptions_reused": len({item.made_of for _, item in shard.all()}) - len(missing),
            "stand_ins": stand_ins,
            "vectors_made": computed,
            "vectors_reused": len(texts) * (1 + settings.names) - computed,
        },
        failed=stand_ins,
        texts=sum(1 for _ in shard.all()),
    )


def _texts(entities: DescribedRows) -> list[str]:
    columns = (entities.rows[name].to_list() for name in ("surface", "type"))
    return [entity_text(*row) for row in zip(*columns, entities.texts, strict=True)]


def _described(part: Part[Any], shard: _Shard, texts: Sequence[str]) -> pa.Table:
    digests = [row_key(text).hex() for text in texts]
    tokens = [shard.reusable.tokens.get(digest) for digest in digests]
    new = [row for row, count in enumerate(tokens) if count is None]
    counted = encoder_of(part).count_tokens([texts[row] for row in new]).tolist() if new else []
    for row, count in zip(new, counted, strict=True):
        tokens[row] = count
    rows = shard.entities.rows.select("entity_id", "name", "surface", "type", "pieces", "passages").with_columns(
        description=pl.Series(shard.entities.texts, dtype=pl.String),
        tokens=pl.Series(tokens, dtype=pl.Int32),
        digest=pl.Series(digests, dtype=pl.String),
        stand_in=pl.Series(shard.entities.stand_ins, dtype=pl.Boolean),
    )
    return conform(rows.to_arrow(), DESCRIBED)


def _related(relations: DescribedRows) -> pa.Table:
    rows = relations.rows.select("source", "target", "kind", "relations").with_columns(
        description=pl.Series(relations.texts, dtype=pl.String),
        digest=pl.Series([row_key(text).hex() for text in relations.texts], dtype=pl.String),
        stand_in=pl.Series(relations.stand_ins, dtype=pl.Boolean),
    )
    return conform(rows.to_arrow(), RELATED)


def _consolidated(texts: Mapping[str, str]) -> pa.Table:
    rows = [{"made_of": made_of, "text": text} for made_of, text in sorted(texts.items())]
    return conform(pa.Table.from_pylist(rows, CONSOLIDATED), CONSOLIDATED)


def _requests(part: Part[DescribeSettings]) -> list[Request]:
    return DescriptionWriter(part.settings).requests(_Shard.of(part).missing())


def estimate(part: Part[DescribeSettings], expected: Expected) -> Estimate:
    """Estimate, from the pieces, the vectors to compute and the requests without an answer in the ledger."""
    settings = part.settings
    shard = _Shard.of(part)
    missing = shard.missing()
    new = {item.made_of: ("", False) for item in missing}
    shard.fill(new)
    entities, count = shard.entities, len(shard.entities.texts)
    unknown = {item.row for item in entities.many if item.made_of in new}
    texts = _texts(entities)
    keys = [row_key(text) for row, text in enumerate(texts) if row not in unknown]
    fresh = len(unknown) + sum(key.hex() not in shard.reusable.tokens for key in keys)
    computed = len(unknown) + len(missing_texts(keys, shard.reusable.vectors.holds(keys)))
    total = count
    if settings.names:
        names = [row_key(name) for name in entities.rows["name"].to_list()]
        computed += len(missing_texts(names, shard.reusable.vectors.holds(names)))
        total += count
    return Estimate(
        rows={"described": RowRange(count, count, Range(fresh - len(unknown), fresh))},
        counts={"vectors_made": computed, "vectors_reused": total - computed},
        llm=DescriptionWriter(settings).use(part.store, missing),
    )


STAGE = Stage(
    "describe",
    version=2,
    compute=_compute,
    libraries=("PyStemmer", "numpy", "polars", "sentencex"),
    estimate=estimate,
    requests=_requests,
    inputs=(
        Input("pieces", PIECES),
        Input("relation_pieces", RELATION_PIECES),
    ),
    outputs=(
        Output("described", DESCRIBED, artifact="described/{label}"),
        Output("related", RELATED, artifact="related/{label}"),
        Output("consolidated", CONSOLIDATED),
        Output("description_vectors", TEXT_VECTORS),
        Output("name_vectors", TEXT_VECTORS),
    ),
    uses_encoder=True,
)
