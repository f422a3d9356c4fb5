"""Stage `attributes`: what is written of the important entities of a shard, and its vectors (NodeRAG, section 2.3).

    Want(<e>, {"read": attribute_read/<e>, "made": attribute_made/<e>},
         {"writer": fingerprint, "encoder": numbers},
         {"opening", "language", "asking", "prompt", "sources": digest of attribute_sources/<e>, or None},
         encoder=numbers)

The inputs are outputs of `hetero_first`. writer and prompt: see `attribute_text`. `made_of` hashes all that an
attribute is made of, so a row that an earlier part holds under it is copied, for whichever entity; a stand-in is not.
Vectors are found by their texts.

    attributes          HETERO_ATTRIBUTES; published
    attribute_vectors   text_keys (n, 16) uint8 and vectors (n, d) float32, row by row with the table; published
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from indexmill.families.heterograph.schema import ATTRIBUTE_VECTORS
from indexmill.models.llm import Request
from schemas.tables import HETERO_ATTRIBUTES, HETERO_MADE, HETERO_READ, HETERO_SOURCES, conform
from storage.tables import read_table
from tasks.core.encoder import encoder_of
from tasks.core.estimate import Estimate, Range, Rows
from tasks.core.request_estimate import foreseen
from tasks.core.stage import Inputs, Outputs, Stage
from tasks.families.heterograph.attribute_writer import extractive, request, said
from tasks.families.heterograph.graph import node_id
from tasks.families.heterograph.reading import Read, reads
from tasks.families.heterograph.sources import by_owner
from tasks.llm.ask import Answer, ask
from tasks.stages.embed.embed import embed_texts, keys_array, row_key
from tasks.stages.embed.known_rows import KnownRows
from tasks.stages.write.summarise import Extractive

__all__ = ["STAGE", "estimate"]

_LONGEST = 16
"""Bytes of an attribute for each token that is asked for: what is longer is cut."""


def _compute(inputs: Inputs) -> Outputs:
    wanted = _reads(inputs)
    known = KnownRows(inputs, HETERO_ATTRIBUTES, "made_of")
    held = known.rows([one.made_of for one in wanted])
    missing = list({one.made_of: one for one in wanted if one.made_of not in held}.values())
    written, asked = _written(inputs, missing) if missing else ([], {})
    tokens = encoder_of(inputs).count_tokens([text for text, _ in written]).tolist() if written else []
    for one, (text, stand_in), count in zip(missing, written, tokens, strict=True):
        held[one.made_of] = {
            "text": text,
            "tokens": count,
            "digest": row_key(text).hex(),
            "made_of": one.made_of,
            "stand_in": stand_in,
        }
    rows = [
        {**held[one.made_of], "attribute_id": node_id("attribute", one.owner), "entity_id": one.owner} for one in wanted
    ]
    rows.sort(key=lambda row: row["attribute_id"])
    vectors, keys, _ = embed_texts(
        [row["text"] for row in rows],
        lambda texts: encoder_of(inputs).encode(texts),
        known.vectors,
        inputs.settings["encoder"]["dimension"],
    )
    stand_ins = sum(row["stand_in"] for row in rows)
    return Outputs(
        tables={"attributes": conform(pa.Table.from_pylist(rows, HETERO_ATTRIBUTES), HETERO_ATTRIBUTES)},
        packs={"attribute_vectors": ATTRIBUTE_VECTORS.conform({"text_keys": keys_array(keys), "vectors": vectors})},
        counts={
            "attributes_made": len(missing),
            "attributes_reused": len(rows) - len(missing),
            "stand_ins": stand_ins,
            **asked,
        },
        failed=stand_ins,
        texts=len(rows),
    )


def _reads(inputs: Inputs) -> list[Read]:
    return list(reads(inputs.table("read", HETERO_READ), inputs.table("made", HETERO_MADE)))


def _written(inputs: Inputs, missing: Sequence[Read]) -> tuple[list[tuple[str, bool]], Mapping[str, int]]:
    """The attribute of each entity, and whether it is a stand-in; counts of what a model was asked."""
    settings = inputs.settings
    tokens: int = settings["writer"]["tokens"]
    writer = Extractive(tokens, settings["language"])
    if settings["writer"]["backend"] == "extractive":
        return [(extractive(one, writer), False) for one in missing], {}
    asked = ask(inputs.store, settings["asking"], _questions(inputs, missing), run_id=inputs.job.run_id)
    texts = [said(one.value, tokens) if isinstance(one, Answer) else "" for one in asked.results]
    return [(text or extractive(one, writer), not text) for one, text in zip(missing, texts, strict=True)], asked.counts


def _questions(inputs: Inputs, missing: Sequence[Read]) -> list[Request]:
    """What a model is asked for some attributes."""
    settings = inputs.settings
    tokens, room = (settings["writer"][name] for name in ("tokens", "input_tokens"))
    about = by_owner(read_table(inputs.store, settings["sources"], HETERO_SOURCES), [one.owner for one in missing])
    return [request(one, tokens, room, settings["prompt"], about=about[one.owner]) for one in missing]


def _missing(inputs: Inputs) -> tuple[int, list[Read]]:
    """How many attributes there are, and what those are made of that no earlier part holds."""
    wanted = _reads(inputs)
    held = KnownRows(inputs, HETERO_ATTRIBUTES, "made_of").rows([one.made_of for one in wanted])
    return len(wanted), list({one.made_of: one for one in wanted if one.made_of not in held}.values())


def _requests(inputs: Inputs) -> list[Request]:
    """What the part will ask a model for: the attributes that no earlier part holds."""
    if inputs.settings["writer"]["backend"] == "extractive":
        return []
    return _questions(inputs, _missing(inputs)[1])


def estimate(inputs: Inputs, expected: Mapping[str, Range]) -> Estimate:
    """How many attributes are written, and what a model is asked for them: both tables are known where a plan is made.

    How long a text will be is not.
    """
    settings = inputs.settings
    count, missing = _missing(inputs)
    rows = Rows(count, count, Range.exactly(len(missing)))
    vectors = ATTRIBUTE_VECTORS.size({"own attributes": count, "dimensions": settings["encoder"]["dimension"]})
    most = count * (_LONGEST * settings["writer"]["tokens"] + 512) + 16_384
    asks = settings["writer"]["backend"] != "extractive"
    return Estimate(
        bytes={"attributes": Range(0, most), "attribute_vectors": Range.exactly(vectors)},
        rows={"attributes": rows, "attribute_vectors": rows},
        llm=(foreseen(inputs.store, settings["asking"], _questions(inputs, missing)),) if asks else (),
    )


STAGE = Stage(
    "attributes",
    version=2,
    compute=_compute,
    libraries=("PyStemmer", "numpy", "sentencex"),
    estimate=estimate,
    requests=_requests,
)
