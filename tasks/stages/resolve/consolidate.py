"""Join an entity shard's pieces into descriptions, and select pieces to summarise if there are too many.

All functions are pure functions of the tables PIECES and RELATION_PIECES; `tasks.stages.resolve.describe` summarises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa

from indexmill.store.canonical import canonical_json, digest_of
from tasks.core.shards import estimate_tokens
from tasks.stages.embed.embed import KEY_BYTES, row_key
from tasks.stages.write.summarise import plain

_MENTIONED_AS = frozenset({"alias", "name", "part", "term", "title"})
"""Types that extraction without a model assigns; they describe only the mention, not the entity."""

_BETWEEN = " -> "


def entity_text(surface: str, type: str, description: str) -> str:  # noqa: A002 - the column's name
    """Return an entity's text, which is embedded and summarised. A surface is never empty."""
    head = surface if not type or type in _MENTIONED_AS else f"{surface} ({type})"
    return f"{head}: {description}" if description else head


def joined(pieces: Sequence[str], tokens: int) -> str:
    """Join the first pieces, up to about `tokens` tokens, without pieces that are contained in others."""
    room = tokens
    chosen: list[str] = []
    for piece in pieces:
        size = estimate_tokens(len(piece.encode("utf-8")))
        if any(piece in longer for longer in chosen) or (chosen and size > room):
            continue
        chosen.append(piece)
        room -= size
    whole = [piece for piece in chosen if not any(piece != longer and piece in longer for longer in chosen)]
    return plain(" ".join(whole), tokens)


def capped(pieces: Sequence[str], tokens: int) -> list[int]:
    """Choose pieces to summarise, by row: those with the smallest hashes, up to about `tokens` tokens.

    So a new or removed piece seldom changes which others are chosen.
    """
    chosen: list[int] = []
    for row in sorted(range(len(pieces)), key=lambda row: (row_key(pieces[row]), row)):
        tokens -= estimate_tokens(len(pieces[row].encode("utf-8")))
        if chosen and tokens < 0:
            break
        chosen.append(row)
    return chosen


@dataclass(frozen=True)
class Many:
    """The pieces of one text, which are too many to be joined and must be summarised.

    row: the table row that gets the text. named: the entity's name, or the names of the pair. all: every piece, in the
    order of joining. texts: the chosen pieces. about: the passages of the chosen pieces and the names. made_of: the
    digest of everything that determines the text.
    """

    row: int
    named: str
    all: Sequence[str]
    texts: Sequence[str]
    about: tuple[str, ...]
    made_of: str


@dataclass
class DescribedRows:
    """The rows of a table with their joined descriptions, or with the pieces that must be summarised."""

    rows: pl.DataFrame
    texts: list[str]
    stand_ins: list[bool]
    many: list[Many] = field(default_factory=list)

    @classmethod
    def of(cls, rows: pl.DataFrame, settings: Mapping[str, Any]) -> DescribedRows:
        """Join the pieces of each row, or collect them for summarising.

        rows: a table with the columns `named`, `texts` (the pieces), `passage_ids` (a passage of each piece) and
        `named_by` (the passages that the names come from).
        """
        setting = settings["description"]
        by = {"description": dict(setting), "describer": settings["describer"]}
        described = cls(rows, [""] * len(rows), [False] * len(rows))
        columns = rows.select("named", "texts", "passage_ids", "named_by")
        for row, (named, pieces, passages, named_by) in enumerate(columns.iter_rows()):
            if not pieces:
                continue
            if len(pieces) <= setting["most_pieces"]:
                described.texts[row] = joined(pieces, setting["tokens"])
                continue
            read = capped(pieces, setting["input_tokens"])
            texts = [pieces[number] for number in read]
            about = tuple(sorted({*named_by, *(passages[number] for number in read)}))
            made_of = digest_of(canonical_json([named, texts, by]))[: 2 * KEY_BYTES]
            described.many.append(Many(row, named, pieces, texts, about, made_of))
        return described


def entities_of(table: pa.Table, settings: Mapping[str, Any]) -> DescribedRows:
    """Return the described entities of a table PIECES, ordered by id."""
    part, owner = partial(_part, pl.DataFrame(pl.from_arrow(table))), ["entity_id"]
    types = _by_frequency(part("type"), owner, "passages").select(*owner, type=pl.col("texts").list.first())
    surfaces = part("surface").select(*owner, named=pl.col("text"), named_by=pl.concat_list("passage_id"))
    rows = part("name").select(*owner, "passages", name="text")
    for columns in (surfaces, types, _by_frequency(part("description"), owner, "passages")):
        rows = rows.join(columns, on=owner, how="left")
    counted = pl.col("texts").list.len().fill_null(0)
    rows = rows.with_columns(pl.col("type").fill_null(""), surface=pl.col("named"), pieces=counted)
    return DescribedRows.of(rows.sort(owner), settings)


def relations_of(table: pa.Table, settings: Mapping[str, Any]) -> DescribedRows:
    """Return the related pairs of a table RELATION_PIECES, ordered by id. A wording is put between its two ends."""
    part, pair = partial(_part, pl.DataFrame(pl.from_arrow(table))), ["source", "target"]
    kinds = _by_frequency(part("kind"), pair, "relations").select(*pair, kind=pl.col("texts").list.first())
    ends = (
        part("source")
        .rename({"text": "shown"})
        .join(part("target").select(*pair, "passage_id", other="text"), on=pair)
        .with_columns(named_by=pl.concat_list("passage_id", "passage_id_right"))
        .drop("passage_id", "passage_id_right")
    )
    wordings = part("wording").join(ends.drop("relations", "named_by"), on=pair)
    wordings = wordings.with_columns(text=pl.concat_str("shown", "text", "other", separator=" "))
    texts = (
        pl.concat([part("description"), wordings.drop("shown", "other")])
        .group_by(*pair, "text")
        .agg(pl.col("relations").sum(), pl.col("passage_id").min())
    )
    rows = (
        ends.join(kinds, on=pair, how="left")
        .join(_by_frequency(texts, pair, "relations"), on=pair, how="left")
        .with_columns(pl.col("kind").fill_null(""), named=pl.concat_str("shown", "other", separator=_BETWEEN))
        .sort(pair)
    )
    return DescribedRows.of(rows, settings)


def _part(pieces: pl.DataFrame, name: str) -> pl.DataFrame:
    return pieces.filter(pl.col("part") == name).drop("part")


def _by_frequency(pieces: pl.DataFrame, owner: list[str], count: str) -> pl.DataFrame:
    """Return each owner's `texts`, the most frequent first and ties by text, and `passage_ids`, one per text."""
    return (
        pieces.sort(*owner, count, "text", descending=[*(False for _ in owner), True, False])
        .group_by(owner, maintain_order=True)
        .agg(texts=pl.col("text"), passage_ids=pl.col("passage_id"))
    )
