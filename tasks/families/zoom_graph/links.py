"""Stage `zoom_links`: the links between similar documents and between similar entities, in blocks (ZoomRAG, eq. 2).

One part for each kind (`documents`, `entities`): `choose` finds the links, `blocks` divides them. The links and the
private pack `zoom_state` are what the next refresh starts from: the moments of exp(cos) of every row, and which packs
of vectors and which blocks they belong to. The vectors of rows that are gone are read from these packs, which the
earlier version keeps. Where any of them is lost, all rows are compared again. Where the driver sees before that all are
to be compared, parts of ranges do so (`compare`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.zoom_graph.schema import LINKS
from indexmill.families.zoom_graph.similar import UnknownName
from indexmill.store.pack_schema import SMALLEST, Array, PackSchema, smallest
from storage.receipts import find
from tasks.core.part_runner import PartSpec, row_space_of
from tasks.core.run import Run
from tasks.core.stage import Output, Outputs, Part, Stage, part_key, worker_arg
from tasks.families.zoom_graph import compare
from tasks.families.zoom_graph.blocks import block_digest, blocks_of, joined_pairs
from tasks.families.zoom_graph.choose import LinkedRows, LinkRule, Links, find_links, is_much, joined_links
from tasks.families.zoom_graph.compare import INPUTS, SOURCES, choices_of, linked_rows, row_ranges
from tasks.families.zoom_graph.moments import UNITS, Moments

__all__ = ["STAGE", "STATE", "LinkSettings", "drive", "known_links", "state_of"]

Packs = Iterable[Mapping[str, NDArray[Any]]]

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
class LinkSettings(compare.LinkSettings):
    """Those of the links of a kind. choices: the packs of all ranges, in order; none for rows to be compared here."""

    choices: tuple[str, ...] = worker_arg(())

    def row_space(self) -> Mapping[str, Any]:
        return {"encoder": self.encoder, "links": self.keyed()}


def drive(run: Run) -> None:
    """Compare documents with each other and, where the settings ask for it, entities (ZoomRAG)."""
    families = run.configuration.families.zoom_graph
    settings = LinkSettings(**families.links(), encoder=run.opened_encoder.numbers)
    kinds = ("documents", "entities") if families.entity_links else ("documents",)
    run.make(STAGE, [_compared(run, PartSpec(kind, run.outputs(SOURCES[kind]), settings)) for kind in kinds])


def _compared(run: Run, spec: PartSpec) -> PartSpec:
    """A part of links; if all of its many rows are to be compared, parts of ranges have found what they choose."""
    settings: Any = spec.settings
    keyed = compare.CompareSettings(**settings.keyed(), source=SOURCES[spec.shard])
    ranges = {f"{spec.shard}-{bits}": replace(keyed, bits=bits) for bits in row_ranges(len(spec.inputs))}
    if len(ranges) == 1 or _is_made(run, spec) or _can_refresh(run, spec):
        return spec
    parts = run.make(compare.STAGE, [PartSpec(label, spec.inputs, own) for label, own in ranges.items()])
    choices = tuple(parts[label].outputs["choices"] for label in ranges if label in parts)  # a replay makes none
    return replace(spec, settings=replace(settings, choices=choices))


def _is_made(run: Run, spec: PartSpec) -> bool:
    """True if the part is there: an earlier version had the same rows."""
    key = part_key(STAGE, spec.shard, spec.settings, spec.inputs)
    return not run.cold and find(run.store, STAGE.name, key) is not None


def _can_refresh(run: Run, spec: PartSpec) -> bool:
    """True if the previous version has links of most of the rows; a plan, which lacks new rows, takes any links."""
    before = run.earlier_part(STAGE.name, spec.shard)
    if before is None or run.cold or before.row_space != row_space_of(STAGE, spec.settings):
        return False
    if not run.makes_parts:
        return True
    state = run.pack(before.outputs["zoom_state"])
    if state is None:
        return False
    was, now = {one.tobytes().hex() for one in state["sources"]}, set(spec.inputs.values())
    gone, fresh = (_signatures(run, digests) for digests in (was - now, now - was))
    if gone is None or fresh is None:
        return False
    n = max(len(state["sums"]), len(state["limits"])) - len(gone) + len(fresh)
    rule: LinkRule = spec.settings.rule  # type: ignore[attr-defined]
    is_exact = n <= rule.exact_rows
    same = len(np.intersect1d(gone, fresh))
    return not is_much(len(gone) + len(fresh) - 2 * same, n) and is_exact == bool(len(state["sums"]))


def _signatures(run: Run, digests: Iterable[str]) -> NDArray[np.uint64] | None:
    """A number for each row of some packs of vectors, by name and vector; None if a pack is lost."""
    found = [np.empty(0, dtype=np.uint64)]
    for digest in sorted(digests):
        pack = run.pack(digest)
        if pack is None:
            return None
        rows = linked_rows([pack])
        weights = np.arange(1, 2 * rows.vectors.shape[1], 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        found.append(rows.names ^ (rows.vectors.astype(np.uint64) @ weights))
    return np.concatenate(found)


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


def _compute(part: Part[LinkSettings]) -> Outputs:
    kind, rule = part.job.shard, part.settings.rule
    source = SOURCES[kind]
    sources = [part.digest(f"{source}/{label}") for label in part.labels(source)]
    rows = linked_rows(part.pack_at(digest) for digest in sources)
    earlier = {digest: part.pack_at(digest) for digest in part.job.reuse}
    ranges = [part.pack_at(digest) for digest in part.settings.choices]
    cells = None
    if ranges:
        found = joined_links(rows, rule, choices_of(rows, ranges))
        cells = np.concatenate([pack["cells"].astype(np.int64) for pack in ranges])
    else:
        found = find_links(rows, rule, next(_known(part, earlier.values()), None))
    blocks = blocks_of(found, cells)
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
            rows = linked_rows(part.pack_at(digest) for digest in digests)
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
    inputs=INPUTS,
    outputs=(
        Output("document_links", LINKS, artifact="document_links/{label}", each=True),
        Output("entity_links", LINKS, artifact="entity_links/{label}", each=True),
        Output("zoom_state", STATE),
    ),
)
