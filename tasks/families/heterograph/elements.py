"""Stage `elements`: the high-level elements of a group of communities, and their vectors (NodeRAG, section 2.3).

    Want(<h>, {"read": element_read/<h>, "made": element_made/<h>},
         {"writer": fingerprint, "encoder": numbers},
         {"opening", "language", "asking", "prompt", "sources": digest of element_sources/<h>, or None},
         encoder=numbers)

The inputs are outputs of `hetero_elements_read`. writer and prompt: see `element_text`. `made_of` hashes all that the
elements of a community are made of, so the rows that an earlier part holds under it are copied, all of them, also to a
community that has lost or won a member that is not read; a stand-in is not. Vectors are found by their texts.

    elements          HETERO_ELEMENTS; published
    element_vectors   text_keys (n, 16) uint8 and vectors (n, d) float32, row by row with the table; published
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from indexmill.families.heterograph.schema import ELEMENT_VECTORS
from indexmill.models.llm import Request
from schemas.tables import HETERO_ELEMENTS, HETERO_MADE, HETERO_READ, HETERO_SOURCES, conform
from storage.tables import read_table
from tasks.core.encoder import encoder_of
from tasks.core.estimate import Estimate, LlmUse, Range, Rows
from tasks.core.request_estimate import foreseen
from tasks.core.stage import Inputs, Outputs, Stage
from tasks.families.heterograph.element_writer import TASK, Element, extractive, most_output, request, said
from tasks.families.heterograph.graph import node_id
from tasks.families.heterograph.reading import Read, reads
from tasks.families.heterograph.sources import by_owner
from tasks.llm.ask import Answer, ask
from tasks.stages.embed.embed import embed_texts, keys_array, row_key
from tasks.stages.embed.known_rows import KnownRows
from tasks.stages.write.summarise import Extractive

__all__ = ["STAGE", "estimate"]

_LONGEST = 16
"""Bytes of an element for each token that is asked for: what is longer is cut."""


def _compute(inputs: Inputs) -> Outputs:
    wanted = _reads(inputs)
    known = KnownRows(inputs, HETERO_ELEMENTS, "made_of")
    held = known.groups([one.made_of for one in wanted])
    missing = [one for one in wanted if one.made_of not in held]
    written, asked = _written(inputs, missing) if missing else ([], {})
    held |= _rows(inputs, missing, written)
    rows = [{**row, "community_id": one.owner} for one in wanted for row in held[one.made_of]]
    rows.sort(key=lambda row: row["element_id"])
    vectors, keys, _ = embed_texts(
        [row["text"] for row in rows],
        lambda texts: encoder_of(inputs).encode(texts),
        known.vectors,
        inputs.settings["encoder"]["dimension"],
    )
    stand_ins = sum(stand_in for _, stand_in in written)
    return Outputs(
        tables={"elements": conform(pa.Table.from_pylist(rows, HETERO_ELEMENTS), HETERO_ELEMENTS)},
        packs={"element_vectors": ELEMENT_VECTORS.conform({"text_keys": keys_array(keys), "vectors": vectors})},
        counts={
            "elements": len(rows),
            "elements_made": len(missing),
            "elements_reused": len(wanted) - len(missing),
            "stand_ins": stand_ins,
            **asked,
        },
        failed=stand_ins,
        texts=len(wanted),
    )


def _reads(inputs: Inputs) -> list[Read]:
    return list(reads(inputs.table("read", HETERO_READ), inputs.table("made", HETERO_MADE)))


def _rows(
    inputs: Inputs, missing: Sequence[Read], written: Sequence[tuple[list[Element], bool]]
) -> dict[str, list[dict[str, Any]]]:
    """The rows of what was written for some communities, by what it is made of."""
    texts = [element.text for elements, _ in written for element in elements]
    tokens = iter(encoder_of(inputs).count_tokens(texts).tolist() if texts else [])
    found: dict[str, list[dict[str, Any]]] = {}
    for one, (elements, stand_in) in zip(missing, written, strict=True):
        for element in elements:
            identity = node_id("high_level", one.made_of, element.text)
            found.setdefault(one.made_of, []).append(
                {
                    "element_id": identity,
                    "overview_id": node_id("overview", identity),
                    "title": element.title,
                    "text": element.text,
                    "tokens": next(tokens),
                    "digest": row_key(element.text).hex(),
                    "made_of": one.made_of,
                    "stand_in": stand_in,
                }
            )
    return found


def _written(inputs: Inputs, missing: Sequence[Read]) -> tuple[list[tuple[list[Element], bool]], Mapping[str, int]]:
    """The elements of each community, and whether they are a stand-in; counts of what a model was asked."""
    settings = inputs.settings
    tokens: int = settings["writer"]["tokens"]
    writer = Extractive(tokens, settings["language"])
    if settings["writer"]["backend"] == "extractive":
        return [([extractive(one, writer)], False) for one in missing], {}
    asked = ask(inputs.store, settings["asking"], _questions(inputs, missing), run_id=inputs.job.run_id)
    most: int = settings["writer"]["elements"]
    answers = [said(one.value, tokens, most) if isinstance(one, Answer) else [] for one in asked.results]
    made = [(answer or [extractive(one, writer)], not answer) for one, answer in zip(missing, answers, strict=True)]
    return made, asked.counts


def _questions(inputs: Inputs, missing: Sequence[Read]) -> list[Request]:
    """What a model is asked for the elements of some communities."""
    settings = inputs.settings
    tokens, most, room = (settings["writer"][name] for name in ("tokens", "elements", "input_tokens"))
    about = by_owner(read_table(inputs.store, settings["sources"], HETERO_SOURCES), [one.owner for one in missing])
    return [request(one, tokens, most, room, settings["prompt"], about=about[one.owner]) for one in missing]


def _missing(inputs: Inputs) -> tuple[int, int, list[Read]]:
    """How many communities there are, how many elements earlier parts hold of them, and the communities they lack."""
    wanted = _reads(inputs)
    held = KnownRows(inputs, HETERO_ELEMENTS, "made_of").groups([one.made_of for one in wanted])
    return len(wanted), sum(map(len, held.values())), [one for one in wanted if one.made_of not in held]


def _requests(inputs: Inputs) -> list[Request]:
    """What the part will ask a model for: the elements that no earlier part holds."""
    if inputs.settings["writer"]["backend"] == "extractive":
        return []
    return _questions(inputs, _missing(inputs)[2])


def estimate(inputs: Inputs, expected: Mapping[str, Range]) -> Estimate:
    """Bounds of how many elements are written, and of what a model is asked for them.

    Which communities are asked about is exact where they are known; how many elements an answer has is not.
    """
    settings = inputs.settings
    asks = settings["writer"]["backend"] != "extractive"
    most: int = settings["writer"]["elements"] if asks else 1
    communities = expected.get("made")
    if communities is None:
        _, held, missing = _missing(inputs)
        rows = Rows(held + len(missing), held + most * len(missing), Range(len(missing), most * len(missing)))
        uses = [foreseen(inputs.store, settings["asking"], _questions(inputs, missing))] if asks else []
    else:
        fresh = communities.fresh if isinstance(communities, Rows) else communities
        rows = Rows(communities.low, most * communities.high, Range(fresh.low, most * fresh.high))
        uses = [_use(inputs, fresh)] if asks else []

    def vectors(count: int) -> int:
        return ELEMENT_VECTORS.size({"own elements": count, "dimensions": settings["encoder"]["dimension"]})

    table = rows.high * (_LONGEST * settings["writer"]["tokens"] + 1024) + 16_384
    return Estimate(
        bytes={"elements": Range(0, table), "element_vectors": Range(vectors(rows.low), vectors(rows.high))},
        rows={"elements": rows, "element_vectors": rows},
        llm=tuple(uses),
    )


def _use(inputs: Inputs, communities: Range) -> LlmUse:
    """What a model is asked about communities that are not known; the ledger may have answers to all of it.

    An answer may need a repair, which holds it.
    """
    settings = inputs.settings
    instructions = len(settings["prompt"][0])
    answer = most_output(settings["writer"]["tokens"], settings["writer"]["elements"])
    low = 0 if inputs.store.list("ledger/") else communities.low
    told = 3 * 4 * settings["writer"]["input_tokens"]  # bytes of three texts, each of which is cut
    more = instructions + told + 1200 + answer  # the schema, and what delimits the texts
    return LlmUse(
        model=str(settings["asking"].settings.model),
        calls=Range(low, 2 * communities.high),
        input_tokens=Range(low * (instructions // 8), 2 * communities.high * more),
        output_tokens=Range(low, 2 * communities.high * answer),
        tasks=(TASK,),
        prompts=communities,
    )


STAGE = Stage(
    "elements",
    version=2,
    compute=_compute,
    libraries=("PyStemmer", "numpy", "sentencex"),
    estimate=estimate,
    requests=_requests,
)
