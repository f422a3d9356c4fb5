"""The driver of `check`: what each shard, each group of texts, and the whole corpus are checked with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.core.part_runner import WHOLE, Want
from tasks.families.bm25 import postings as bm25
from tasks.families.lsh_tree import summaries as lsh_summaries
from tasks.families.lsh_tree import vectors as lsh_vectors
from tasks.pipeline import check
from tasks.pipeline.manifest import FAMILIES
from tasks.stages.embed import titles as embed_titles
from tasks.stages.extract import extractive as extract
from tasks.stages.extract.tables import EXTRACTION
from tasks.stages.resolve import describe, same_as

if TYPE_CHECKING:
    from tasks.pipeline.build import Build

__all__ = ["make"]


def make(build: Build) -> None:
    """Check every shard and group, then what is made of all of them.

    Stages of families that may be off are named here, not imported: their libraries are slow to import.
    """
    parts = build.parts
    of_shards = _shards(build) | _groups(build)
    entities = parts["resolve"][WHOLE].outputs
    for shard, receipt in parts["embed_names"].items():
        of_shards[shard] = {"entities": entities[f"entities/{shard}"], "names": receipt.outputs["names"]}
    for shard, receipt in parts.get(describe.STAGE.name, {}).items():
        told = ("described", "related", "description_vectors")
        of_shards[shard] |= {name: receipt.outputs[name] for name in told}
    for shard, receipt in parts.get("attributes", {}).items():
        of_shards[shard] |= receipt.outputs
    checked = build.make(check.STAGE, [Want(shard, inputs, {}) for shard, inputs in of_shards.items()])
    whole = build.outputs("mentions", "extracted", *build.descriptions)
    whole |= {f"checked/{shard}": checked[shard].outputs["checked"] for shard in of_shards}
    for family in (name for name in FAMILIES if name in parts):
        whole |= {f"{family}/{name}": digest for name, digest in parts[family][WHOLE].outputs.items()}
    if "heterograph" in parts:
        whole |= build.outputs("passages", "units", "attributes", "elements", "entities")
    if same_as.STAGE.name in parts:
        whole |= parts[same_as.STAGE.name][WHOLE].outputs
    build.make(check.STAGE, [Want(WHOLE, whole, {})])


def _shards(build: Build) -> dict[str, dict[str, str]]:
    """What was made of each shard's documents."""
    parts = build.parts
    found = {
        shard: {**build.texts(shard), "vectors": parts["embed"][shard].outputs["vectors"]} for shard in parts["split"]
    }
    for shard, receipt in parts.get(embed_titles.STAGE.name, {}).items():
        found[shard]["titles"] = receipt.outputs["titles"]
    for shard, receipt in parts.get(bm25.STAGE.name, {}).items():
        found[shard]["bm25"] = receipt.outputs["bm25"]
    for shard, receipt in parts.get(extract.STAGE.name, {}).items():
        found[shard] |= {name: receipt.outputs[name] for name in EXTRACTION}
    for shard, receipt in parts.get("hetero_units", {}).items():
        found[shard] |= receipt.outputs
    return found


def _groups(build: Build) -> dict[str, dict[str, str]]:
    """What was written of the groups of nodes of a tree, or of communities."""
    parts, found = build.parts, {}
    segments, members = build.outputs("segments"), build.outputs("community_members")
    for group, receipt in parts.get("community_reports", {}).items():
        found[group] = {**receipt.outputs, "members": members[f"community_members/{group}"]}
    for group, receipt in parts.get(lsh_summaries.STAGE.name, {}).items():
        vectors = parts[lsh_vectors.STAGE.name][group].outputs
        found[group] = {**receipt.outputs, **vectors, "segments": segments[f"segments/{group}"]}
    for group, receipt in parts.get("elements", {}).items():
        found[group] = dict(receipt.outputs)
    return found
