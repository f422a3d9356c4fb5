"""The drivers of heterograph: vectors of units, then attributes, communities, high-level elements, and the whole graph.

After the vectors, two kinds of stages alternate: a stage of the whole corpus selects the inputs of the texts about
entities or communities, then a stage of groups writes the texts that no earlier part has. Only the communities depend
on the previous version (tasks.core.warm_start).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.core.part_runner import PartSpec
from tasks.core.redone import count_redone
from tasks.core.run import Run
from tasks.core.stage import WHOLE, NoSettings, Stage, StageSettings
from tasks.core.writer import BoundWriter
from tasks.families.heterograph import (
    attribute_inputs,
    attributes,
    communities,
    community_graph,
    element_inputs,
    elements,
    index,
)
from tasks.families.heterograph.text_inputs import ReadingSettings
from tasks.families.heterograph.writing import TextSettings
from tasks.stages.write.text_writer import worker_settings

Digests = Mapping[str, str]


def make_graph(run: Run) -> None:
    """Make all texts, the communities, and the graph with its index."""
    settings = run.configuration.families.heterograph
    of_entities, of_groups = run.models.writer(attributes.WRITER), run.models.writer(elements.WRITER)
    reading = settings.model_dump(include={"units", "relations", "input_tokens", "seed"})
    sources = run.outputs("mentions", "extracted") if of_entities.asks else {}
    digests: dict[str, str] = run.outputs("units", "unit_entities", "relations", "entities")
    if "same_as" in run.parts:
        digests |= run.parts["same_as"][WHOLE].outputs

    first = ReadingSettings(**reading, writer=of_entities.fingerprint)
    read = _make(run, attribute_inputs.STAGE, {**digests, **sources}, first)
    digests |= {**read, **_write(run, attributes.STAGE, "attribute", of_entities, read)}

    graph = _make(run, community_graph.STAGE, digests, NoSettings())
    clustering = communities.CommunitySettings(**settings.model_dump(include={"grain", "largest", "seed"}))
    start = communities.inputs_of(run, WHOLE, graph["graph"], clustering)
    digests |= _make(run, communities.STAGE, start, clustering)

    more = settings.model_dump(include={"attributes", "fewest", "group"})
    second = element_inputs.ElementReadingSettings(**reading, **more, writer=of_groups.fingerprint)
    read = _make(run, element_inputs.STAGE, {**digests, **graph, **sources}, second)
    if any(run.store.blob_size(digest) is None for digest in read.values()):
        run.mark_uncertain()  # the groups are not known yet
    digests |= {**read, **_write(run, elements.STAGE, "element", of_groups, read)}

    whole = index.HeterographStageSettings(
        asks=of_groups.asks,
        dimension=run.opened_encoder.settings["encoder"]["dimension"],
        neighbours=settings.neighbours,
        seed=settings.seed,
    )
    digests |= run.outputs("passages", "vectors", "unit_vectors", "mentions")
    _make(run, index.STAGE, digests, whole)


def _make(run: Run, stage: Stage[Any], digests: Digests, settings: StageSettings) -> Digests:
    """Make a stage's part of the whole corpus. digests: by input name; only the stage's declared inputs are used."""
    names = {one.name for one in stage.inputs}
    inputs = {name: digest for name, digest in digests.items() if name.partition("/")[0] in names}
    return run.make(stage, [PartSpec(WHOLE, inputs, settings)])[WHOLE].outputs


def _write(run: Run, stage: Stage[Any], kind: str, writer: BoundWriter, read: Digests) -> dict[str, str]:
    """Write the texts about entities or communities, with their vectors; return the digests by name and label.

    read: the outputs `<kind>_read/<label>`, `<kind>_made/<label>` and `<kind>_sources/<label>` of the previous stage.
    """
    labels = [name.partition("/")[2] for name in read if name.startswith(f"{kind}_read/")]

    def settings(label: str) -> TextSettings:
        return TextSettings(
            **run.opened_encoder.settings,
            **worker_settings(run, stage, writer),
            writer=writer.fingerprint,
            sources=read.get(f"{kind}_sources/{label}"),
        )

    specs = [
        PartSpec(label, {name: read[f"{kind}_{name}/{label}"] for name in ("read", "made")}, settings(label))
        for label in labels
    ]
    receipts = run.make(stage, specs)
    parts = {label: receipts[label].outputs for label in labels}
    count_redone(run, stage, stage.name, (part[stage.name] for part in parts.values()), "made_of", named=stage.name)
    return {f"{name}/{label}": digest for label, part in parts.items() for name, digest in part.items()}
