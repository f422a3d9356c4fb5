"""The drivers of lsh_tree: they cut nodes into segments and summarise these, layer by layer (EraRAG, Algorithm 1)."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from indexmill.store.packs import open_pack
from storage.receipts import Receipt
from tasks.core.part_runner import Parts, PartSpec
from tasks.core.redone import count_redone
from tasks.core.run import Run
from tasks.core.stage import WHOLE
from tasks.families.lsh_tree import axes as lsh_axes
from tasks.families.lsh_tree import codes as lsh_codes
from tasks.families.lsh_tree import segments as lsh_segments
from tasks.families.lsh_tree import summaries as lsh_summaries
from tasks.families.lsh_tree import tree as lsh_tree
from tasks.families.lsh_tree import vectors as lsh_vectors
from tasks.families.lsh_tree.blocks import groups_of, most_of
from tasks.families.lsh_tree.hierarchy import Bounds
from tasks.stages.write.text_writer import worker_settings

Texts = Mapping[str, Mapping[str, str]]
"""The digests of the tables with texts, by shard or block: see `tasks.families.lsh_tree.texts`."""


def make_axes(run: Run) -> None:
    """Compute the principal axes of the encoder."""
    settings = lsh_axes.AxesSettings(**run.opened_encoder.settings)
    run.make(lsh_axes.STAGE, [PartSpec(WHOLE, {}, settings)])


def make_codes(run: Run) -> None:
    """Compute the codes of each shard's passages."""
    settings = lsh_codes.HyperplaneSettings(
        seed=run.configuration.families.lsh_tree.seed, dimension=run.opened_encoder.numbers["dimension"]
    )
    axes = run.parts["lsh_axes"][WHOLE].outputs
    shards = {
        shard: {**axes, "passages": part.outputs["passages"], **run.parts["embed"][shard].outputs}
        for shard, part in run.parts["split"].items()
    }
    run.make(lsh_codes.STAGE, [PartSpec(shard, inputs, settings) for shard, inputs in shards.items()])


def make_tree(run: Run) -> None:
    """Make layers while there are too many nodes, then the tree over all layers.

    No layer waits for the vectors of summaries, which `make_vectors` computes.
    """
    settings = run.configuration.families.lsh_tree
    bounds = Bounds(settings.smallest, settings.largest, settings.layers)
    below = run.outputs("passages", "codes")
    tree = {**run.outputs("passages"), **run.parts["lsh_axes"][WHOLE].outputs}
    parts, table = run.parts["split"], "passages"
    digests = run.outputs("documents", "passages", "plain")
    texts: Texts = {
        shard: {name: digests[f"{name}/{shard}"] for name in ("documents", "passages", "plain")} for shard in parts
    }
    layer = 0
    while run.wants_layer(
        lsh_segments.STAGE.name,
        lsh_segments.layer_label(layer + 1),
        functools.partial(bounds.want_another, layer),
        parts,
        table,
    ):
        layer += 1
        segments = _segment(run, layer, below, texts)
        parts, table = _summarise(run, layer, segments, texts), "written"
        if run.makes_parts:
            count_redone(
                run,
                lsh_segments.STAGE,
                "segments",
                segments.values(),
                lambda digest: _nodes_of(run, digest),
                named="segments",
                layer=f"_l{layer}",
                of_layer=lsh_segments.layer_label(layer).__eq__,
                total=sum(part.rows["written"] for part in parts.values()),
            )
        else:
            _embed(run, parts)  # a plan estimates the vectors layer by layer
        texts = {
            name.partition("/")[2]: {"summaries": digest}
            for part in parts.values()
            for name, digest in _summaries_of(part).items()
        }
        below = {**segments, **{f"written/{group}": part.outputs["written"] for group, part in parts.items()}}
        tree |= below
    shaping = lsh_tree.SegmentTreeSettings(
        **settings.model_dump(include={"smallest", "largest", "layers", "seed"}),
        dimension=run.opened_encoder.numbers["dimension"],
    )
    run.make(lsh_tree.STAGE, [PartSpec(WHOLE, tree, shaping)])


def make_vectors(run: Run) -> None:
    """Make the vectors of all layers' summaries; a plan has estimated them layer by layer."""
    if run.makes_parts:
        _embed(run, run.parts.get(lsh_summaries.STAGE.name, {}))


def _embed(run: Run, summaries: Mapping[str, Receipt]) -> None:
    settings = run.opened_encoder.vector_settings
    # The upper layers first: a change redoes a larger share of them, and long work should not start last.
    groups = sorted(summaries.items(), reverse=True)
    run.make(lsh_vectors.STAGE, [PartSpec(group, _summaries_of(part), settings) for group, part in groups])


def _summaries_of(part: Receipt) -> dict[str, str]:
    return {name: digest for name, digest in part.outputs.items() if name.startswith("summaries/")}


def _nodes_of(run: Run, digest: str) -> list[bytes]:
    ids = open_pack(run.store.open_local(digest))["ids"]
    return [node.tobytes() for node in ids]


def _segment(run: Run, layer: int, below: Mapping[str, str], texts: Texts) -> Mapping[str, str]:
    """Make the part that cuts the nodes below a layer, and return its outputs."""
    settings, numbers = run.configuration.families.lsh_tree, run.opened_encoder.numbers
    shaping = lsh_segments.SegmentSettings(
        **settings.model_dump(include={"smallest", "largest", "group", "seed"}),
        layer=layer,
        summariser=run.models.writer(lsh_summaries.WRITER).fingerprint,
        encoder=numbers,
        texts=texts,
        title_in_passage=run.configuration.split.title_in_passage,
    )
    label = lsh_segments.layer_label(layer)
    return run.make(lsh_segments.STAGE, [PartSpec(label, below, shaping)])[label].outputs


def _summarise(run: Run, layer: int, segments: Mapping[str, str], texts: Texts) -> Parts:
    """Make the parts of a layer's groups from the packs of their segments and the tables of the children's texts."""
    writer = run.models.writer(lsh_summaries.WRITER)
    most = run.configuration.families.lsh_tree.group
    blocks = [name.removeprefix("segments/") for name in segments]
    groups = groups_of(blocks, most // most_of(layer, most))
    settings = lsh_summaries.SummarySettings(
        layer=layer,
        summariser=writer.fingerprint,
        tokenizer=run.models.choice().tokenizer,
        opening=run.models.choice().tokenizer,  # `split` has stored its file as a blob
        texts=texts,
        title_in_passage=run.configuration.split.title_in_passage,
        **worker_settings(run, lsh_summaries.STAGE, writer),
        largest=run.configuration.families.lsh_tree.largest,
        groups=len(groups),
    )
    receipts = run.make(
        lsh_summaries.STAGE,
        [
            PartSpec(group, {f"segments/{block}": segments[f"segments/{block}"] for block in blocks}, settings)
            for group, blocks in groups.items()
        ],
    )
    return {group: receipts[group] for group in groups}
