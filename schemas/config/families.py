"""Settings of the index families that shape their artifacts: one class and one field of `FamilySettings` per family.

Each class declares the shared stages that its family needs, so that no other code has to name the family.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, model_validator

from indexmill.families.community_tree.parameters import CommunityTreeParameters
from indexmill.families.heterograph.parameters import HeterographParameters
from indexmill.families.lsh_tree.parameters import LshTreeParameters
from indexmill.families.tri_graph.parameters import TriGraphParameters
from indexmill.families.zoom_graph.parameters import ZoomGraphParameters
from indexmill.mistakes import WrongSettings, mistakes, unknown_setting
from indexmill.retrieve.fused import FusedParameters
from indexmill.retrieve.passage_vectors import DenseParameters
from indexmill.retrieve.term_index import Bm25Parameters
from schemas.config.settings_section import Settings

_Values = dict[str, float | int | bool | str]


def _validated_by(parameters: type[Any]) -> AfterValidator:
    """Return a validator of retrieval settings by a family's dataclass `parameters`; it rejects unknown names."""

    def checked(value: _Values) -> _Values:
        names = [field.name for field in dataclasses.fields(parameters)]
        problems = {name: unknown_setting(name, names) for name in value if name not in names}
        adapter = TypeAdapter(parameters)
        try:
            whole = adapter.validate_python({name: value[name] for name in value if name in names})
        except ValidationError as error:
            below = (line.partition(": ") for line in mistakes(error, adapter.json_schema()))
            problems |= {name: message for name, _, message in below}
        if problems:
            raise WrongSettings(problems)
        return {name: getattr(whole, name) for name in value}

    return AfterValidator(checked)


def _parameters() -> Any:
    return Field(
        default_factory=dict, description="retrieval settings that differ from the defaults, written into the snapshot"
    )


class FamilySection(Settings):
    """Settings of a family that can be disabled, with the shared stages that it needs."""

    needs_extraction: ClassVar[bool] = False
    """True if the family reads the outputs of the `extract` stage."""

    needs_descriptions: ClassVar[bool] = False
    """True if the family reads the outputs of the `describe` stage."""

    enabled: bool = True


class FusedSettings(Settings):
    """How the retrieval methods are combined; no artifact depends on these settings."""

    parameters: Annotated[_Values, _validated_by(FusedParameters)] = Field(
        default_factory=dict,
        description="the weights of methods and the pool, if they differ from the defaults; `evaluate --fit` finds "
        "them",
    )


class DenseSettings(Settings):
    """Settings of dense retrieval, which every snapshot has."""

    parameters: Annotated[_Values, _validated_by(DenseParameters)] = _parameters()


class Bm25Settings(FamilySection):
    """Settings of lexical retrieval."""

    title_weight: int = Field(
        3, ge=1, le=100, description="how many times a title counts in each of its passages, if split.title_in_passage"
    )
    parameters: Annotated[_Values, _validated_by(Bm25Parameters)] = _parameters()


class TriGraphSettings(FamilySection):
    """Settings of the tri_graph family that shape its artifacts (LinearRAG, section 3.1)."""

    parameters: Annotated[_Values, _validated_by(TriGraphParameters)] = _parameters()


class ZoomGraphSettings(FamilySection):
    """Settings of the zoom_graph family that shape its artifacts (ZoomRAG, section 3.1)."""

    threshold: float = Field(
        3.0, ge=0.0, le=10.0, description="standard deviations above a row's mean of exp(cos) that a link exceeds"
    )
    cap: int = Field(64, ge=1, le=4096, description="maximum links that a row chooses; other rows may add links")
    exact_rows: int = Field(
        65_536, ge=0, description="above this number of rows, means and deviations are estimated instead of computed"
    )
    entity_links: bool = Field(
        False, description="also link similar names; the paper does not, and recall is worse with these links"
    )
    parameters: Annotated[_Values, _validated_by(ZoomGraphParameters)] = _parameters()

    def links(self) -> dict[str, Any]:
        return {"threshold": self.threshold, "cap": self.cap, "exact_rows": self.exact_rows}


class LshTreeSettings(FamilySection):
    """Settings of the lsh_tree family that shape its artifacts (EraRAG, section III)."""

    smallest: int = Field(6, ge=2, le=4096, description="minimum nodes of a segment (the paper's S_min)")
    largest: int = Field(12, ge=3, le=8192, description="maximum nodes of a segment (S_max)")
    layers: int = Field(5, ge=1, le=16, description="maximum layers of summaries (L)")
    summary_tokens: int = Field(100, ge=16, le=2048, description="the approximate tokens of a summary")
    seed: int = Field(0, ge=0, lt=2**32, description="the seed of the hyperplanes")
    group: int = Field(512, ge=1, le=65_536, description="maximum segments whose summaries make one part")
    parameters: Annotated[_Values, _validated_by(LshTreeParameters)] = _parameters()

    @model_validator(mode="after")
    def _halves_fit(self) -> LshTreeSettings:
        if self.largest < 2 * self.smallest - 1:
            raise ValueError(
                f"largest {self.largest} is below 2 x smallest - 1 = {2 * self.smallest - 1}: an overfull segment "
                "could not be halved"
            )
        return self


class CommunityTreeSettings(FamilySection):
    """Settings of the community_tree family that shape its artifacts (ArchRAG, section 3.1)."""

    needs_extraction: ClassVar[bool] = True
    needs_descriptions: ClassVar[bool] = True

    enabled: bool = Field(False, description="needs extraction, and works best with a language model")
    augmentation: Literal["codicil", "knn", "none"] = Field(
        "codicil", description="how links by content are added: codicil: the best of all links; knn: all neighbours"
    )
    clustering: Literal["leiden"] = Field(
        "leiden", description="how communities are found; a refresh starts from those of the previous version"
    )
    levels: int = Field(4, ge=1, le=8, description="maximum levels of communities")
    fewest: int = Field(5, ge=2, le=1_000_000, description="minimum nodes of a level for another level above it")
    grain: int = Field(400, ge=0, description="nodes for each step of Leiden's resolution; 0: plain modularity")
    largest: int = Field(50, ge=0, description="maximum members of a community; 0: no bound")
    neighbours: int = Field(10, ge=0, le=256, description="nearest nodes that each node is linked to by content (k)")
    threshold: float = Field(0.6, ge=-1, le=1, description="minimum cosine of a link by content, with knn")
    alpha: float = Field(0.5, ge=0, le=1, description="weight of shared neighbours against content, with codicil")
    seed: int = Field(0, ge=0, lt=2**31, description="the seed of the clustering")
    report_tokens: int = Field(300, ge=16, le=4096, description="the approximate tokens of a report's summary")
    input_tokens: int = Field(
        3_000, ge=200, le=200_000, description="the approximate tokens of members and relations in a report's prompt"
    )
    group: int = Field(512, ge=1, le=65_536, description="maximum communities whose reports make one part")
    m: int = Field(16, ge=1, le=128, description="minimum links of a node in its level of C-HNSW (M); maximum: 2 M")
    parameters: Annotated[_Values, _validated_by(CommunityTreeParameters)] = _parameters()


class HeterographSettings(FamilySection):
    """Settings of the heterograph family that shape its artifacts (NodeRAG, section 2)."""

    needs_extraction: ClassVar[bool] = True

    enabled: bool = Field(False, description="needs extraction, and works best with a language model")
    neighbours: int = Field(
        24, ge=0, le=256, description="number of nearest nodes by vector that each node is linked to; 0: none"
    )
    units: int = Field(20, ge=0, le=1024, description="maximum units in the prompt of one text")
    relations: int = Field(20, ge=0, le=1024, description="maximum relations in the prompt of one text")
    attributes: int = Field(10, ge=0, le=1024, description="maximum attributes in the prompt of a community's elements")
    input_tokens: int = Field(
        3_000, ge=64, le=200_000, description="the approximate input tokens of one text; the first input is always used"
    )
    attribute_tokens: int = Field(200, ge=16, le=2048, description="the approximate tokens of an attribute")
    element_tokens: int = Field(150, ge=16, le=2048, description="the approximate tokens of a high-level element")
    elements: int = Field(5, ge=1, le=64, description="maximum high-level elements of a community; 1 without a model")
    fewest: int = Field(
        2, ge=1, le=1_000_000, description="minimum units, relations and attributes of a community that gets elements"
    )
    grain: int = Field(2_000, ge=0, description="nodes for each step of Leiden's resolution; 0: plain modularity")
    largest: int = Field(300, ge=0, description="maximum nodes of a community; 0: no bound")
    group: int = Field(512, ge=1, le=65_536, description="maximum communities whose elements make one part")
    seed: int = Field(0, ge=0, lt=2**31, description="the seed of the clustering and of the sampling of nodes to read")
    parameters: Annotated[_Values, _validated_by(HeterographParameters)] = _parameters()

    @model_validator(mode="after")
    def _texts_are_made_of_something(self) -> HeterographSettings:
        if not self.units + self.relations:
            raise ValueError("units and relations are both 0: texts would have no input; raise one of them")
        return self


class FamilySettings(Settings):
    """The index families of a snapshot, and how they are combined."""

    fused: FusedSettings = FusedSettings()
    dense: DenseSettings = DenseSettings()
    bm25: Bm25Settings = Bm25Settings()
    tri_graph: TriGraphSettings = TriGraphSettings()
    zoom_graph: ZoomGraphSettings = ZoomGraphSettings()
    lsh_tree: LshTreeSettings = LshTreeSettings()
    community_tree: CommunityTreeSettings = CommunityTreeSettings()
    heterograph: HeterographSettings = HeterographSettings()
