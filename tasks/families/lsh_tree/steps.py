"""The driver of lsh_tree: layer by layer, cut the nodes into segments and summarise these (EraRAG, Algorithm 1)."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from indexmill.errors import CorruptBlob
from schemas.tables import LSH_SEGMENTS
from storage.tables import read_table
from tasks.core.part_runner import WHOLE, Parts, Want
from tasks.families.lsh_tree import segments as lsh_segments
from tasks.families.lsh_tree import summaries as lsh_summaries
from tasks.families.lsh_tree import tree as lsh_tree
from tasks.families.lsh_tree import vectors as lsh_vectors
from tasks.families.lsh_tree.hierarchy import Bounds

if TYPE_CHECKING:
    from tasks.pipeline.build import Build

__all__ = ["embed", "make"]


def make(build: Build) -> None:
    """Make every layer, and the tree of them; the vectors of summaries, which no layer waits for, are for `embed`."""
    settings = build.configuration.families.lsh_tree
    bounds = Bounds(settings.smallest, settings.largest, settings.layers)
    axes = build.parts["lsh_axes"][WHOLE].outputs
    below = build.outputs("passages", "vectors")
    tree = {**build.outputs("passages"), **axes}
    parts, table = build.parts["split"], "passages"
    texts = {shard: build.texts(shard) for shard in parts}
    layer = 0
    while build.wants_layer(
        lsh_segments.STAGE.name,
        lsh_segments.layer_label(layer + 1),
        functools.partial(bounds.want_another, layer),
        parts,
        table,
    ):
        layer += 1
        label = lsh_segments.layer_label(layer)
        made = _segment(build, layer, {**below, **axes}, texts)
        groups = _groups(made)
        parts, table = _summarise(build, layer, groups, texts), "summaries"
        if build.makes_parts:
            _tell_segments(build, layer, groups, parts)
        else:
            embed(build, parts)  # a plan tells layer by layer whether it will be
        texts = {group: {"summaries": part.outputs["summaries"]} for group, part in parts.items()}
        below = {f"summaries/{group}": part.outputs["summaries"] for group, part in parts.items()}
        below |= {"places": made["places"]}
        tree |= {f"codes/{label}": made["codes"]}
        tree |= {f"segments/{group}": digest for group, digest in groups.items()}
        tree |= {name: digest for name, digest in below.items() if name != "places"}
    tree |= {name: digest for name, digest in below.items() if name.startswith(("places", "vectors/"))}  # of the roots
    whole = {name: getattr(settings, name) for name in ("smallest", "largest", "layers", "seed")}
    whole["dimension"] = build.opened_encoder.numbers["dimension"]
    build.make(lsh_tree.STAGE, [Want(WHOLE, tree, whole)])


def embed(build: Build, summaries: Parts) -> None:
    """Make the vectors of some groups' summaries."""
    numbers = build.opened_encoder.numbers
    build.make(
        lsh_vectors.STAGE,
        [
            Want(
                group,
                {"summaries": part.outputs["summaries"]},
                {"encoder": numbers},
                {"opening": build.opened_encoder.opening},
                encoder=numbers,
            )
            # The upper layers first: a change redoes a larger share of them, and what takes long is not begun last.
            for group, part in sorted(summaries.items(), reverse=True)
        ],
    )


def _groups(outputs: Mapping[str, str]) -> dict[str, str]:
    """The tables of segments among the outputs of `lsh_segments`, by group."""
    return {name.removeprefix("segments/"): outputs[name] for name in outputs if name.startswith("segments/")}


def _segment(
    build: Build, layer: int, below: Mapping[str, str], texts: Mapping[str, Mapping[str, str]]
) -> Mapping[str, str]:
    """The outputs of the part that cuts the nodes below a layer."""
    settings = build.configuration.families.lsh_tree
    numbers, label = build.opened_encoder.numbers, lsh_segments.layer_label(layer)
    shaping = {name: getattr(settings, name) for name in ("smallest", "largest", "group", "seed")}
    shaping |= {"layer": layer, "dimension": numbers["dimension"], "summariser": build.summariser_fingerprint}
    extra = {"texts": texts, "title_in_passage": build.configuration.split.title_in_passage}
    alike = {name: value for name, value in shaping.items() if name != "group"}  # segments in other groups
    want = Want(label, below, shaping, extra, encoder={**alike, "encoder": numbers})
    return build.make(lsh_segments.STAGE, [want])[label].outputs


def _summarise(build: Build, layer: int, groups: Mapping[str, str], texts: Mapping[str, Mapping[str, str]]) -> Parts:
    """The parts of a layer's groups, given the tables of their segments, and where the children's texts lie."""
    summariser, tokenizer = build.summariser_fingerprint, build.choice.tokenizer
    extra = {
        "opening": tokenizer,  # its file is a blob since `split`
        "texts": texts,
        "title_in_passage": build.configuration.split.title_in_passage,
        "language": build.configuration.split.language,
        "asking": build.asking(lsh_summaries.STAGE.name),
        "prompt": build.summary_prompt,
        "largest": build.configuration.families.lsh_tree.largest,
        "groups": len(groups),
    }
    made = build.make(
        lsh_summaries.STAGE,
        [
            Want(
                group,
                {"segments": digest},
                {"layer": layer, "summariser": summariser, "tokenizer": tokenizer},
                extra,
                encoder={"tokenizer": tokenizer, "summariser": summariser},
            )
            for group, digest in groups.items()
        ],
    )
    return {group: made[group] for group in groups}


def _tell_segments(build: Build, layer: int, groups: Mapping[str, str], parts: Parts) -> None:
    """Count in the report the segments that the parent has, too, and those that it has not."""
    label = lsh_segments.layer_label(layer)
    before = {
        digest
        for entry in (build.parent.lineage.entries if build.parent else ())
        if (entry.stage, entry.shard) == (lsh_segments.STAGE.name, label)
        for digest in _groups(entry.outputs).values()
    }
    now = set(groups.values())
    redone = len(_node_ids(build, now - before) - _node_ids(build, before - now))
    counts = build.report.stage(lsh_segments.STAGE.name).counts
    counts[f"segments_redone_l{layer}"] = redone
    counts[f"segments_kept_l{layer}"] = sum(part.rows["summaries"] for part in parts.values()) - redone


def _node_ids(build: Build, tables: Iterable[str]) -> set[str]:
    """The nodes of some tables of segments; none of one that was lost or damaged."""
    found: set[str] = set()
    for digest in sorted(tables):
        with contextlib.suppress(CorruptBlob):
            column = read_table(build.store, digest, LSH_SEGMENTS, columns=["node_id"]).column("node_id")
            found.update(column.unique().to_pylist())
    return found
