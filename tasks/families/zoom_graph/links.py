"""Stage `zoom_links`: the links between similar documents and between similar entities, in blocks (ZoomRAG, eq. 2).

One part for each kind (`documents`, `entities`): `choose` finds the links, `blocks` divides them. The next refresh
starts from the links and the private pack `zoom_state`: the moments of exp(cos) of every row, and the packs of vectors
and blocks that they belong to. Vectors of deleted rows are read from these packs, which the earlier version keeps; if
one is lost, all rows are compared again. If the driver foresees that, parts of ranges compare them (`compare`).
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
from tasks.families.zoom_graph.blocks import (
    block_digest,
    blocks_of,
    cells_of,
    joined_pairs,
    label_of,
    lower_names,
    refreshed_cells,
)
from tasks.families.zoom_graph.choose import LinkedRows, LinkRule, Links, find_links, is_much, joined_links
from tasks.families.zoom_graph.compare import INPUTS, SOURCES, choices_of, linked_rows, row_ranges
from tasks.families.zoom_graph.moments import Moments

Block = Mapping[str, NDArray[Any]]

_LINKS = {"documents": "document_links", "entities": "entity_links"}

STATE = PackSchema(
    "the data from which a refresh starts, besides the links",
    {
        "sources": Array("uint8", ("sources", 32), "the digests of the packs with the rows, in order"),
        "blocks": Array("uint8", ("blocks", 16), "the digests of the blocks of links, ascending"),
        "centres": Array("uint64", ("blocks",), "the name of each block's centre; 0 if there is none"),
        "sums": Array(SMALLEST, ("rows",), "the sum of each row: see `tasks.families.zoom_graph.moments`; at least 0"),
        "squares": Array(SMALLEST, ("rows",), "the sum of squares of each row"),
        "limits": Array("int16", ("limits",), "the similarity that links exceed; empty if moments determine it"),
        "counts": Array("int64", (2,), "the number of pairs, and of rows that chose the maximum"),
    },
)


@dataclass(frozen=True)
class PreviousLinks:
    """The links of an earlier part. cells: the rows that have pairs in a block, by the name of its centre."""

    links: Links
    cells: Mapping[int, NDArray[np.int64]]


@dataclass(frozen=True)
class ZoomLinkSettings(compare.CompareLinkSettings):
    """The settings of one kind of links. choices: the packs of all ranges, in order; empty if no ranges were made."""

    choices: tuple[str, ...] = worker_arg(())

    def row_space(self) -> Mapping[str, Any]:
        return {"encoder": self.encoder, "links": self.keyed()}


def drive(run: Run) -> None:
    """Link similar documents and, if the settings ask for it, similar entities (ZoomRAG)."""
    families = run.configuration.families.zoom_graph
    settings = ZoomLinkSettings(**families.links(), encoder=run.opened_encoder.numbers)
    kinds = ("documents", "entities") if families.entity_links else ("documents",)
    run.make(STAGE, [_compared(run, PartSpec(kind, run.outputs(SOURCES[kind]), settings)) for kind in kinds])


def _compared(run: Run, spec: PartSpec) -> PartSpec:
    """Return the spec of a part of links; if all of its many rows are compared, make the parts of ranges first."""
    settings: Any = spec.settings
    keyed = compare.CompareSettings(**settings.keyed(), source=SOURCES[spec.shard])
    ranges = {f"{spec.shard}-{bits}": replace(keyed, bits=bits) for bits in row_ranges(len(spec.inputs))}
    if len(ranges) == 1 or _is_made(run, spec):
        return spec
    if _can_refresh(run, spec):
        if run.makes_parts:
            return spec
        run.mark_uncertain(compare.STAGE.name)
    parts = run.make(compare.STAGE, [PartSpec(label, spec.inputs, own) for label, own in ranges.items()])
    choices = tuple(parts[label].outputs["choices"] for label in ranges if label in parts)  # a replay makes none
    return replace(spec, settings=replace(settings, choices=choices))


def _is_made(run: Run, spec: PartSpec) -> bool:
    key = part_key(STAGE, spec.shard, spec.settings, spec.inputs)
    return not run.cold and find(run.store, STAGE.name, key) is not None


def _can_refresh(run: Run, spec: PartSpec) -> bool:
    """Return True if the previous version has links of most rows. A plan, which lacks the new rows, assumes it."""
    earlier = run.earlier_part(STAGE.name, spec.shard)
    if earlier is None or run.cold or earlier.row_space != row_space_of(STAGE, spec.settings):
        return False
    if not run.makes_parts:
        return True
    state = run.pack(earlier.outputs["zoom_state"])
    if state is None or any(run.store.blob_size(digest) is None for digest in earlier.outputs.values()):
        return False
    was, now = {one.tobytes().hex() for one in state["sources"]}, set(spec.inputs.values())
    gone, fresh = (_signatures(run, digests) for digests in (was - now, now - was))
    if gone is None or fresh is None:
        return False
    rule: LinkRule = spec.settings.rule  # type: ignore[attr-defined]
    before = len(state["sums"])
    n = before - len(gone) + len(fresh)
    same = len(np.intersect1d(gone, fresh))
    return not is_much(len(gone) + len(fresh) - 2 * same, n) and rule.is_exact(before) == rule.is_exact(n)


def _signatures(run: Run, digests: Iterable[str]) -> NDArray[np.uint64] | None:
    """Return a hash of each row's name and vector in packs of vectors; None if a pack is lost."""
    signatures = [np.empty(0, dtype=np.uint64)]
    for digest in sorted(digests):
        pack = run.pack(digest)
        if pack is None:
            return None
        rows = linked_rows([pack])
        weights = np.arange(1, 2 * rows.vectors.shape[1], 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        signatures.append(rows.names ^ (rows.vectors.astype(np.uint64) @ weights))
    return np.concatenate(signatures)


def state_of(
    links: Links, rule: LinkRule, sources: Iterable[str], blocks: Iterable[tuple[bytes, int | None]]
) -> dict[str, NDArray[Any]]:
    """Make the private pack of links. sources: digests of packs with rows. blocks: their digests and centres' names."""
    digests = sorted((digest, centre or 0) for digest, centre in blocks)
    sums, squares = links.moments.stored(rule.sampled(len(links.rows)))
    return {
        "sources": np.frombuffer(bytes.fromhex("".join(sources)), dtype=np.uint8).reshape(-1, 32),
        "blocks": np.frombuffer(b"".join(digest for digest, _ in digests), dtype=np.uint8).reshape(-1, 16),
        "centres": np.array([centre for _, centre in digests], dtype=np.uint64),
        "sums": smallest(sums),
        "squares": smallest(squares),
        "limits": links.limits[: len(links.limits) if links.moments.sampled else 0].astype(np.int16),
        "counts": np.array([len(links.pairs), links.full], dtype=np.int64),
    }


def known_links(state: Block, rows: LinkedRows, blocks: Mapping[bytes, Block], rule: LinkRule) -> PreviousLinks | None:
    """Return the links of a private pack; None if its rows or blocks do not match.

    blocks: blocks of links by digest; the blocks that the pack does not list are ignored.
    """
    centres = dict(zip((one.tobytes() for one in state["blocks"]), state["centres"].tolist(), strict=True))
    n = len(rows)
    if not centres.keys() <= blocks.keys() or n != len(state["sums"]):
        return None
    blocks_by_centre = {centre: blocks[digest] for digest, centre in centres.items()}
    try:
        pairs = joined_pairs(blocks_by_centre.values(), rows)
    except UnknownName:
        return None
    is_exact = rule.is_exact(n)
    moments = Moments.of_stored(state["sums"], state["squares"], rule.sampled(n), sampled=not is_exact)
    limits = moments.limits(np.arange(n), rule.threshold) if is_exact else state["limits"].astype(np.int64)
    cells = {centre: rows.names.searchsorted(lower_names(block)) for centre, block in blocks_by_centre.items()}
    return PreviousLinks(Links(rows, moments, limits, pairs, int(state["counts"][1]), compared=0), cells)


def _compute(part: Part[ZoomLinkSettings]) -> Outputs:
    kind, rule = part.job.shard, part.settings.rule
    source = SOURCES[kind]
    sources = [part.digest(f"{source}/{label}") for label in part.labels(source)]
    packs = [part.pack_at(digest) for digest in sources]
    ranges = [part.pack_at(digest) for digest in part.settings.choices]
    earlier = {digest: part.pack_at(digest) for digest in part.job.reuse}
    stored = {block_digest(pack): digest for digest, pack in earlier.items() if "partners" in pack}
    if ranges:
        rows = linked_rows(packs, [False] * len(packs))
        links = joined_links(rows, rule, choices_of(rows, ranges))
        cells = np.concatenate([pack["cells"].astype(np.int64) for pack in ranges])
    else:
        rows = linked_rows(packs)
        states = [pack for pack in earlier.values() if "sources" in pack]
        earlier_links = next(
            _earlier_links(part, states, {name: earlier[digest] for name, digest in stored.items()}), None
        )
        links = find_links(rows, rule, None if earlier_links is None else earlier_links.links)
        if earlier_links is None or links.origins is None:
            cells = cells_of(rows)
        else:
            cells = refreshed_cells(rows, links.origins, earlier_links.cells)
    blocks: dict[str, Block] = {}
    reused: dict[str, str] = {}
    centres: list[tuple[bytes, int | None]] = []
    for centre, block in blocks_of(links, cells):
        label, name = f"{_LINKS[kind]}/{label_of(centre)}", block_digest(block)
        centres.append((name, centre))
        if name in stored:
            reused[label] = stored[name]
        blocks[label] = earlier[stored[name]] if name in stored else block  # the memory-mapped block, to free this one
    return Outputs(
        packs={"zoom_state": state_of(links, rule, sources, centres), **blocks},
        counts={"rows_compared": links.compared, "rows_found": len(rows) - links.compared},
        reused_packs=reused,
    )


def _earlier_links(
    part: Part[ZoomLinkSettings], states: Iterable[Block], blocks: Mapping[bytes, Block]
) -> Iterator[PreviousLinks]:
    """Yield the links of earlier parts whose packs of vectors all exist. states, blocks: from all earlier parts."""
    for state in states:
        digests = [one.tobytes().hex() for one in state["sources"]]
        others = set(digests) - set(part.job.inputs.values())
        if len(part.store.blob_sizes(others)) == len(others):
            rows = linked_rows([part.pack_at(digest) for digest in digests], [one in others for one in digests])
            earlier_links = known_links(state, rows, blocks, part.settings.rule)
            if earlier_links is not None:
                yield earlier_links


STAGE = Stage(
    "zoom_links",
    version=4,
    compute=_compute,
    libraries=("numpy",),
    expensive=True,
    inputs=INPUTS,
    outputs=(
        Output("document_links", LINKS, artifact="document_links/{label}", each=True),
        Output("entity_links", LINKS, artifact="entity_links/{label}", each=True),
        Output("zoom_state", STATE),
    ),
)
