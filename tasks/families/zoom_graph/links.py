"""Stage `zoom_links`: the links between similar documents and between similar entities, in blocks (ZoomRAG, eq. 2).

One part for each kind (`documents`, `entities`): `choose` finds the links, `blocks` divides them. The links and the
private pack `zoom_state` are what the next refresh starts from: the moments of exp(cos) of every row, and which packs
of vectors and which blocks they belong to. The vectors of rows that are gone are read from these packs, which the
earlier version keeps. Where any of them is lost, all rows are compared again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.zoom_graph.schema import DOCUMENT_VECTORS, LINKS
from indexmill.families.zoom_graph.similar import UnknownName
from indexmill.retrieve.directions import as_unit_vectors
from indexmill.retrieve.grid import on_grid
from indexmill.retrieve.shared_schema import NAMES
from indexmill.store.pack_schema import SMALLEST, Array, PackSchema, smallest
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import Input, Output, Outputs, Part, Settings, Stage, worker_arg
from tasks.families.zoom_graph.blocks import block_digest, blocks_of, joined_pairs
from tasks.families.zoom_graph.choose import LinkedRows, LinkRule, Links, find_links
from tasks.families.zoom_graph.moments import UNITS, Moments

__all__ = ["STAGE", "STATE", "LinkSettings", "drive", "known_links", "state_of"]

Packs = Iterable[Mapping[str, NDArray[Any]]]

_SOURCES = {"documents": "document_vectors", "entities": "names"}
_LINKS = {"documents": "document_links", "entities": "entity_links"}

STATE = PackSchema(
    "what a refresh of links starts from, beside the links",
    {
        "sources": Array("uint8", ("sources", 32), "the digests of the packs with the rows, in order"),
        "blocks": Array("uint8", ("blocks", 16), "of the blocks of links, ascending"),
        "sums": Array(SMALLEST, ("moments",), "of each row: the sum of exp(cos) in units, more than 0"),
        "squares": Array(SMALLEST, ("moments",), "the sum of squares of exp(cos) - 1 in units"),
        "limits": Array("int16", ("limits",), "the similarity that links exceed; none where moments give it"),
        "counts": Array("int64", (2,), "pairs, and rows that chose as many as they may"),
    },
)


@dataclass(frozen=True)
class LinkSettings(Settings):
    """The settings of the links of one kind: see `LinkRule`. encoder: what determines the vectors."""

    threshold: float = 3.0
    cap: int = 64
    exact_rows: int = 65_536
    encoder: Mapping[str, Any] | None = worker_arg(None)

    def row_space(self) -> Mapping[str, Any]:
        return {"encoder": self.encoder, "links": self.keyed()}

    @property
    def rule(self) -> LinkRule:
        """What determines the links of some vectors."""
        return LinkRule(self.threshold, self.cap, self.exact_rows)


def drive(run: Run) -> None:
    """Compare documents with each other and, where the settings ask for it, entities (ZoomRAG)."""
    families = run.configuration.families.zoom_graph
    settings = LinkSettings(**families.links(), encoder=run.opened_encoder.numbers)
    kinds = ("documents", "entities") if families.entity_links else ("documents",)
    run.make(STAGE, [PartSpec(kind, run.outputs(_SOURCES[kind]), settings) for kind in kinds])


def state_of(links: Links, rule: LinkRule, sources: Iterable[str], blocks: Packs) -> dict[str, NDArray[Any]]:
    """The private pack of some links. sources: the digests of the packs with their rows. blocks: those of the links."""
    exact, none = len(links.rows) <= rule.exact_rows, np.empty(0, dtype=np.int64)
    digests = sorted(block_digest(block).tobytes() for block in blocks)
    return {
        "sources": np.frombuffer(bytes.fromhex("".join(sources)), dtype=np.uint8).reshape(-1, 32),
        "blocks": np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, 16),
        "sums": smallest(links.moments.sums + UNITS * len(links.rows) if exact else none),
        "squares": smallest(links.moments.squares if exact else none),
        "limits": (none if exact else links.limits).astype(np.int16),
        "counts": np.array([len(links.low), links.full], dtype=np.int64),
    }


def known_links(state: Mapping[str, NDArray[Any]], rows: LinkedRows, blocks: Packs, rule: LinkRule) -> Links | None:
    """The links of a private pack, its rows and its blocks; None if the rows or the blocks are others.

    blocks: may be more than those of these links.
    """
    wanted = {one.tobytes() for one in state["blocks"]}
    own = {digest: block for block in blocks if (digest := block_digest(block).tobytes()) in wanted}
    exact = len(rows) <= rule.exact_rows
    if len(own) < len(wanted) or len(rows) != len(state["sums" if exact else "limits"]):
        return None
    try:
        low, high, steps = joined_pairs(own.values(), rows)
    except UnknownName:
        return None
    if exact:
        sums, squares = (state[name].astype(np.int64) for name in ("sums", "squares"))
        moments = Moments(sums - UNITS * len(rows), squares)
        limits = moments.limits(np.arange(len(rows)), rule.threshold)
    else:
        moments, limits = Moments.zeros(len(rows)), state["limits"].astype(np.int64)
    return Links(rows, moments, limits, low, high, steps, int(state["counts"][1]), compared=0)


def _rows(packs: Packs) -> LinkedRows:
    """The rows of some packs of vectors, of documents or of names."""
    names, vectors = [np.empty(0, dtype=np.uint64)], []
    for pack in packs:
        of_names = "entity_keys" in pack
        names.append(pack["entity_keys" if of_names else "keys"])
        own = pack["vectors"]
        vectors.append(on_grid(as_unit_vectors(own)).astype(np.int16) if of_names else own)
    return LinkedRows.of(np.concatenate(names), np.concatenate(vectors) if vectors else np.empty((0, 1), np.int16))


def _compute(part: Part[LinkSettings]) -> Outputs:
    kind, rule = part.job.shard, part.settings.rule
    source = _SOURCES[kind]
    sources = [part.digest(f"{source}/{label}") for label in part.labels(source)]
    rows = _rows(part.pack_at(digest) for digest in sources)
    earlier = {digest: part.pack_at(digest) for digest in part.job.reuse}
    found = find_links(rows, rule, next(_known(part, earlier.values()), None))
    blocks = blocks_of(found)
    stored = {block_digest(pack).tobytes(): digest for digest, pack in earlier.items() if "partners" in pack}
    kept = {label: stored.get(block_digest(block).tobytes()) for label, block in blocks.items()}
    return Outputs(
        packs={
            "zoom_state": state_of(found, rule, sources, blocks.values()),
            **{f"{_LINKS[kind]}/{label}": block for label, block in blocks.items()},
        },
        counts={"rows_compared": found.compared, "rows_found": len(rows) - found.compared},
        kept={f"{_LINKS[kind]}/{label}": digest for label, digest in kept.items() if digest is not None},
    )


def _known(part: Part[LinkSettings], packs: Packs) -> Iterator[Links]:
    """The links of earlier parts that are complete, with all packs of vectors. packs: the outputs of these parts."""
    blocks = [pack for pack in packs if "partners" in pack]
    for state in (pack for pack in packs if "sources" in pack):
        digests = [one.tobytes().hex() for one in state["sources"]]
        others = set(digests) - set(part.job.inputs.values())
        if len(part.store.blob_sizes(others)) == len(others):
            rows = _rows(part.pack_at(digest) for digest in digests)
            known = known_links(state, rows, blocks, part.settings.rule)
            if known is not None:
                yield known


STAGE = Stage(
    "zoom_links",
    version=3,
    compute=_compute,
    settings=LinkSettings,
    libraries=("numpy",),
    expensive=True,
    inputs=(
        Input("document_vectors", DOCUMENT_VECTORS, each=True, optional=True),
        Input("names", NAMES, stage="embed_names", each=True, optional=True),
    ),
    outputs=(
        Output("document_links", LINKS, artifact="document_links/{label}", each=True),
        Output("entity_links", LINKS, artifact="entity_links/{label}", each=True),
        Output("zoom_state", STATE),
    ),
)
