"""The driver of heterograph: attributes, communities, high-level elements, and the graph of all of them (NodeRAG).

The vectors of units are made shard by shard before (`hetero_units`). What follows takes turns: a stage of the whole
corpus says what the texts about entities, or about communities, are made of, then a stage of groups writes those that
no earlier part holds. Communities alone look back at the version before (tasks.core.warm_start).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from indexmill.errors import CorruptBlob
from storage.tables import read_table
from tasks.core.part_runner import WHOLE, Parts, Want
from tasks.core.stage import Stage
from tasks.families.heterograph import attribute_inputs as hetero_first
from tasks.families.heterograph import attributes, elements
from tasks.families.heterograph import communities as hetero_groups
from tasks.families.heterograph import community_graph as hetero_graph
from tasks.families.heterograph import element_inputs as hetero_elements_read
from tasks.families.heterograph import index as heterograph_index
from tasks.stages.resolve import same_as

if TYPE_CHECKING:
    from tasks.pipeline.build import Build

__all__ = ["make"]

Digests = Mapping[str, str]

_READ = ("units", "relations", "input_tokens", "seed")
_GROUPS = ("grain", "largest", "seed")


@dataclass(frozen=True)
class _Texts:
    """What is written of entities, or of communities: the stage, and what its tables are called."""

    stage: Stage[Any]
    prefix: str
    table: str
    writer: Mapping[str, Any]
    prompt: tuple[str, str] | None

    @property
    def asks(self) -> bool:
        """Whether a language model is asked."""
        return self.prompt is not None


def make(build: Build) -> None:
    """Make all texts, the communities, and the graph with its index."""
    settings = build.configuration.families.heterograph
    of_entities = _Texts(
        attributes.STAGE, "attribute", "attributes", build.attribute_fingerprint, build.attribute_prompt
    )
    of_groups = _Texts(elements.STAGE, "element", "elements", build.element_fingerprint, build.element_prompt)
    said = build.outputs("units", "unit_entities", "relations")
    entities, same = build.outputs("entities"), _same_as(build)
    sources = build.outputs("mentions", "extracted") if of_entities.asks else {}

    first = {name: getattr(settings, name) for name in _READ} | {"writer": of_entities.writer}
    inputs = {**said, **entities, **same, **sources}
    read = build.make(hetero_first.STAGE, [Want(WHOLE, inputs, first)])[WHOLE].outputs
    written = _written(build, of_entities, read)

    inputs = {**said, **_of(written, "attributes"), **same}
    graph = build.make(hetero_graph.STAGE, [Want(WHOLE, inputs, {})])[WHOLE].outputs["graph"]
    shaping = {name: getattr(settings, name) for name in _GROUPS}
    want = Want(WHOLE, hetero_groups.inputs_of(build, WHOLE, graph, shaping), shaping)
    found = build.make(hetero_groups.STAGE, [want])[WHOLE].outputs
    groups = {"hetero_communities": found["hetero_communities"]}

    second = {name: getattr(settings, name) for name in (*_READ, "attributes", "fewest", "group")}
    second["writer"] = of_groups.writer
    inputs = {**said, **entities, **_of(written, "attributes"), "graph": graph, **groups, **sources}
    inputs = {name: digest for name, digest in inputs.items() if not name.startswith("unit_entities/")}
    want = Want(WHOLE, inputs, second, encoder={"writer": of_groups.writer})
    read_of_groups = build.make(hetero_elements_read.STAGE, [want])[WHOLE].outputs
    if any(build.store.blob_size(digest) is None for digest in read_of_groups.values()):
        build.mark_uncertain()  # which groups there will be is not known
    written |= _written(build, of_groups, read_of_groups)

    whole = {"neighbours": settings.neighbours, "seed": settings.seed, "asks": of_groups.asks}
    whole["dimension"] = build.opened_encoder.numbers["dimension"]
    bounds = {name: getattr(settings, name) for name in ("units", "relations", "attributes", "elements")}
    held = build.outputs("passages", "vectors", "unit_vectors")
    reads = _of(read, "attribute_read") | _of(read_of_groups, "element_read")
    inputs = {**said, **entities, **same, **held, **written, **reads, **groups, **build.outputs("mentions")}
    build.make(heterograph_index.STAGE, [Want(WHOLE, inputs, whole, bounds)])


def _same_as(build: Build) -> dict[str, str]:
    """The pairs of entities of nearly the same name, where they are looked for."""
    found = build.parts.get(same_as.STAGE.name, {}).get(WHOLE)
    return {} if found is None else {"same_as": found.outputs["same_as"]}


def _of(digests: Digests, name: str) -> dict[str, str]:
    """The tables or packs `<name>/<label>` among some."""
    return {one: digest for one, digest in digests.items() if one.startswith(name + "/")}


def _written(build: Build, texts: _Texts, read: Digests) -> dict[str, str]:
    """The texts about entities, or about communities, and their vectors, by name and label."""
    numbers = build.opened_encoder.numbers
    extra = {
        "opening": build.opened_encoder.opening,
        "language": build.configuration.split.language,
        "asking": build.asking(texts.stage.name),
        "prompt": texts.prompt,
    }
    labels = [name.partition("/")[2] for name in _of(read, f"{texts.prefix}_read")]
    wants = [
        Want(
            label,
            {name: read[f"{texts.prefix}_{name}/{label}"] for name in ("read", "made")},
            {"writer": texts.writer, "encoder": numbers},
            {**extra, "sources": read.get(f"{texts.prefix}_sources/{label}")},
            encoder=numbers,
        )
        for label in labels
    ]
    found = build.make(texts.stage, wants)
    parts = {label: found[label] for label in labels}
    if build.makes_parts:
        _tell(build, texts, parts)
    return {f"{name}/{label}": digest for label, part in parts.items() for name, digest in part.outputs.items()}


def _tell(build: Build, texts: _Texts, parts: Parts) -> None:
    """Count in the report the entities, or communities, whose texts the parent has, too, and the others."""
    before = {
        entry.outputs[texts.table]
        for entry in (build.parent.lineage.entries if build.parent else ())
        if entry.stage == texts.stage.name
    }
    now = {part.outputs[texts.table] for part in parts.values()}
    known, new = _made_of(build, before - now), _made_of(build, now - before)
    counts, redone = build.report.stage(texts.stage.name).counts, len(new - known)
    counts[f"{texts.table}_redone"] = redone
    counts[f"{texts.table}_kept"] = len(_made_of(build, now)) - redone


def _made_of(build: Build, tables: Iterable[str]) -> set[str]:
    """What the texts of some tables are made of; nothing of a table that was lost or damaged."""
    found: set[str] = set()
    for digest in sorted(tables):
        with contextlib.suppress(CorruptBlob):
            found.update(read_table(build.store, digest, columns=["made_of"])["made_of"].to_pylist())
    return found
