"""The stages from the graph to the high-level elements, night after night over one store, with no build around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
from numpy.typing import NDArray

from indexmill.store.packs import open_pack
from schemas.config import LlmSettings
from schemas.tables import SAME_AS
from storage.folder import FolderStore
from storage.lineage import LineageEntry
from storage.protocol import Store
from storage.receipts import Receipt
from storage.table_blobs import put_table, read_table
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import WHOLE, NoSettings, PartResult
from tasks.families.heterograph import communities as hetero_groups
from tasks.families.heterograph import community_graph as hetero_graph
from tasks.families.heterograph import element_inputs as hetero_elements_read
from tasks.families.heterograph import elements
from tasks.families.heterograph.graph import node_id
from tasks.families.heterograph.tables import HETERO_ATTRIBUTES
from tasks.families.heterograph.writing import TextSettings
from tasks.llm.ask import LlmAccess
from tasks.llm.quota import LocalQuota
from tasks.stages.embed.embed import row_key
from tests.tasks.families.heterograph.graphs import Corpus, ids, put_corpus
from tests.tasks.making import OPENING, Parts, bound, numbers_of

READING: Mapping[str, Any] = {"units": 6, "relations": 6, "attributes": 3, "fewest": 2, "group": 2, "seed": 0}
GROUPING: Mapping[str, int] = {"grain": 0, "largest": 20, "seed": 0}
TOKENS, MOST, ROOM = 40, 3, 300


def attribute_rows(*names: str, text: str = "{} is important.") -> pa.Table:
    """Attributes of the entities of some names (HETERO_ATTRIBUTES)."""
    rows = []
    for name, entity in zip(names, ids(*names), strict=True):
        said = text.format(name.title())
        rows.append(
            {"attribute_id": node_id("attribute", entity), "entity_id": entity, "text": said, "tokens": 5}
            | {"digest": row_key(said).hex(), "made_of": node_id("made", said), "stand_in": False}
        )
    rows.sort(key=lambda row: str(row["attribute_id"]))
    return pa.Table.from_pylist(rows, HETERO_ATTRIBUTES)


@dataclass
class Night:
    """One run. before: the run before it, whose parts it may go on from and copy rows of.

    corpus, names: as `put_corpus` takes them; important: the names of which there are attributes.
    """

    store: Store
    corpus: Corpus
    names: Sequence[str]
    important: Sequence[str] = ()
    before: Night | None = None
    cold: bool = False
    llm: LlmSettings = field(default_factory=LlmSettings)
    reading: Mapping[str, Any] = field(default_factory=dict)
    grouping: Mapping[str, Any] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict)
    same_as: pa.Table | None = None
    most: int = MOST
    retry_refused: bool = False
    run_id: str = "run"

    def __post_init__(self) -> None:
        assert isinstance(self.store, FolderStore)
        self.parts = Parts(self.store, self.run_id)
        self.made: dict[str, dict[str, PartResult]] = {}
        self.inputs = put_corpus(self.store, self.corpus, self.names, self.shown)
        self.inputs["attributes/e0"] = put_table(self.store, attribute_rows(*self.important), HETERO_ATTRIBUTES)[0]
        if self.same_as is not None:
            self.inputs["same_as"] = put_table(self.store, self.same_as, SAME_AS)[0]
        shaping = {"element_tokens": TOKENS, "elements": self.most, "input_tokens": ROOM}
        self.writer = bound(elements.WRITER, self.llm, heterograph=shaping)
        self.asking = LlmAccess(self.llm, LocalQuota().of("elements"), self.retry_refused)

    # What a run is to `inputs_of`.

    def earlier_part(self, stage: str, shard: str) -> LineageEntry | None:
        made = {} if self.before is None else self.before.made.get(stage, {})
        return LineageEntry.of(made[shard].receipt) if shard in made else None

    def pack(self, digest: str) -> Mapping[str, NDArray[Any]] | None:
        return None if self.store.blob_size(digest) is None else open_pack(self.store.open_local(digest))

    # The stages.

    def graph_want(self) -> PartSpec:
        names = ("units", "unit_entities", "relations", "attributes", "same_as")
        return PartSpec(WHOLE, self._of(*names), NoSettings())

    def groups_want(self) -> PartSpec:
        settings = hetero_groups.CommunitySettings(**{**GROUPING, **self.grouping})
        graph = self.made["hetero_graph"][WHOLE].receipt.outputs["graph"]
        return PartSpec(WHOLE, hetero_groups.inputs_of(cast("Run", self), WHOLE, graph, settings), settings)

    def read_want(self) -> PartSpec:
        names = ["units", "relations", "entities", "attributes"]
        if self.writer.asks:
            names += ["mentions", "extracted"]
        inputs = {
            **self._of(*names),
            "graph": self.outputs("hetero_graph")["graph"],
            "hetero_communities": self.outputs("hetero_groups")["hetero_communities"],
        }
        settings = {**READING, "input_tokens": ROOM, "writer": self.writer.fingerprint, **self.reading}
        return PartSpec(WHOLE, inputs, hetero_elements_read.ElementReadingSettings(**settings))

    def element_wants(self) -> list[PartSpec]:
        assert isinstance(self.store, FolderStore)
        made, numbers = self.outputs("hetero_elements_read"), numbers_of(self.store)
        return [
            PartSpec(
                label,
                {"read": made[f"element_read/{label}"], "made": made[f"element_made/{label}"]},
                TextSettings(
                    encoder=numbers,
                    opening=OPENING,
                    language="en",
                    asking=self.asking,
                    prompt=self.writer.prompt,
                    writer=self.writer.fingerprint,
                    sources=made.get(f"element_sources/{label}"),
                ),
            )
            for label in sorted(name.partition("/")[2] for name in made if name.startswith("element_made/"))
        ]

    def group(self) -> Night:
        """Make the graph and its communities."""
        self.make(hetero_graph.STAGE, self.graph_want())
        self.make(hetero_groups.STAGE, self.groups_want())
        return self

    def read(self) -> Night:
        """Make what the elements are made of, and all before it."""
        self.group()
        self.make(hetero_elements_read.STAGE, self.read_want())
        return self

    def run(self) -> Night:
        """Make all."""
        self.read()
        for spec in self.element_wants():
            self.make(elements.STAGE, spec)
        return self

    def make(self, stage: Any, spec: PartSpec) -> None:
        self.made.setdefault(stage.name, {})[spec.shard] = self.parts.make(stage, spec, self.reuse(stage.name))

    def reuse(self, stage: str) -> list[Receipt]:
        """The parts that rows may be copied from."""
        if self.before is None or self.cold or stage not in ("hetero_elements_read", "elements"):
            return []
        return [made.receipt for made in self.before.made.get(stage, {}).values()]

    # What was made.

    def outputs(self, stage: str) -> Mapping[str, str]:
        """The outputs of the one part of a stage."""
        return self.made[stage][WHOLE].receipt.outputs

    def table(self, stage: str, name: str) -> pa.Table:
        """The tables of this name, or named `<name>/<label>`, of all parts of a stage."""
        digests = {
            (output if "/" in output else f"{output}/{label}"): digest
            for label, made in self.made.get(stage, {}).items()
            for output, digest in made.receipt.outputs.items()
        }
        found = [read_table(self.store, digests[one]) for one in sorted(digests) if one.partition("/")[0] == name]
        return pa.concat_tables(found)

    def membership(self) -> dict[str, str]:
        table = self.table("hetero_groups", "hetero_communities")
        return dict(zip(table["node_id"].to_pylist(), table["community_id"].to_pylist(), strict=True))

    def count(self, name: str, stage: str = "elements") -> int:
        """What the parts that were made count."""
        return sum(made.counts.get(name, 0) for made in self.made.get(stage, {}).values())

    def parts_made(self) -> int:
        return sum(not made.reused for parts in self.made.values() for made in parts.values())

    def digests(self, stage: str) -> dict[str, Mapping[str, str]]:
        """The outputs of a stage's parts, by label."""
        return {label: made.receipt.outputs for label, made in self.made.get(stage, {}).items()}

    def _of(self, *prefixes: str) -> dict[str, str]:
        return {name: digest for name, digest in self.inputs.items() if name.partition("/")[0] in prefixes}
