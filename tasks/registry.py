"""The families and steps of a build; each step follows the steps that it needs."""

from __future__ import annotations

from schemas.config import Configuration
from tasks.core import encoder
from tasks.core.builder_family import BuilderFamily
from tasks.core.order import in_order
from tasks.core.step import Step, shard_step
from tasks.families.bm25.family import FAMILY as BM25
from tasks.families.community_tree.family import FAMILY as COMMUNITY_TREE
from tasks.families.heterograph.family import FAMILY as HETEROGRAPH
from tasks.families.lsh_tree.family import FAMILY as LSH_TREE
from tasks.families.tri_graph.family import FAMILY as TRI_GRAPH
from tasks.families.zoom_graph.family import FAMILY as ZOOM_GRAPH
from tasks.stages.check import check
from tasks.stages.embed import embed, embed_names, passage_codes, titles
from tasks.stages.extract import extractive, llm_extract
from tasks.stages.ingest import part, read_part
from tasks.stages.recognise import llm_recognise, rules
from tasks.stages.resolve import describe, mention_links, name_counts, piece_counts, pieces, resolve, same_as
from tasks.stages.resolve.description_writer import WRITER as DESCRIPTIONS
from tasks.stages.sbom import sbom
from tasks.stages.split import split

FAMILIES: tuple[BuilderFamily, ...] = (
    BM25,
    TRI_GRAPH,
    ZOOM_GRAPH,
    LSH_TREE,
    COMMUNITY_TREE,
    HETEROGRAPH,
)

WRITERS = (DESCRIPTIONS, *(writer for family in FAMILIES for writer in family.writers))
"""The writers of texts; they use a language model if the settings name one."""

_SHARED = (
    Step("encoder", lambda run: run.encoder(), (encoder.STAGE,)),
    Step("sbom", sbom.drive, (sbom.STAGE,), after=("encoder",), enabled=lambda settings: settings.run.sbom),
    Step("scan", lambda run: run.scan(), (read_part.STAGE,)),
    Step("ingest", lambda run: run.ingest(), (part.STAGE,), after=("scan",), of_shards=True),
    shard_step("split", split, split.settings_of),
    Step("recognise", llm_recognise.drive, (rules.STAGE, llm_recognise.STAGE), of_shards=True),
    Step(
        "extract",
        llm_extract.drive,
        (extractive.STAGE, llm_extract.STAGE),
        enabled=lambda settings: settings.extracts,
        of_shards=True,
    ),
    shard_step("embed", embed, embed.settings_of),
    shard_step(
        "embed_titles",
        titles,
        lambda run: run.opened_encoder.vector_settings,
        enabled=lambda settings: settings.split.title_in_passage,
    ),
    shard_step("passage_codes", passage_codes, passage_codes.settings_of),
    shard_step(
        "mention_links",
        mention_links,
        enabled=lambda settings: settings.families.tri_graph.enabled or settings.families.zoom_graph.enabled,
    ),
    Step("resolve", resolve.drive, (name_counts.STAGE, resolve.STAGE)),
    Step("pieces", pieces.drive, (piece_counts.STAGE, pieces.STAGE), enabled=lambda settings: settings.describes),
    Step("describe", describe.drive, (describe.STAGE,), enabled=lambda settings: settings.describes),
    Step(
        "same_as",
        same_as.drive,
        (same_as.STAGE,),
        enabled=lambda settings: settings.describes and settings.resolve.same_as.enabled,
    ),
    Step("embed_names", embed_names.drive, (embed_names.STAGE,)),
)
"""The steps that families share."""


_BUILDING = (*_SHARED, *(step for family in FAMILIES for step in family.guarded_steps()))

STEPS: tuple[Step, ...] = in_order(
    (
        *_BUILDING,
        Step("check", check.drive, after=tuple(step.name for step in _BUILDING)),
        Step(
            "quality",
            lambda run: run.quality(),
            after=("check",),
            enabled=lambda settings: settings.gates.questions is not None,
        ),
    )
)


def enabled_steps(configuration: Configuration) -> tuple[Step, ...]:
    """Return the steps that the settings enable, each after the steps that it needs."""
    return tuple(step for step in STEPS if step.enabled(configuration))
