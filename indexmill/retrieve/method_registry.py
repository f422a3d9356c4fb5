"""The retrieval methods by name. A family is a folder with a declaration (``family.py``) and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from indexmill.errors import BadInput, FamilyNotFound
from indexmill.retrieve.artifacts import Artifacts, CacheKey
from indexmill.retrieve.reader_family import Fusion, ReaderFamily, load

if TYPE_CHECKING:
    from indexmill.retrieve.retrieval_method import Retriever
    from indexmill.retrieve.term_index import TermIndex
    from indexmill.store.manifest import Manifest

_RETRIEVER: CacheKey[Retriever] = CacheKey("retriever")

_FUSED = ReaderFamily(
    name="fused",
    retriever="indexmill.retrieve.fused:Fused",
    parameters="indexmill.retrieve.fused:FusedParameters",
    always=True,
)
_DENSE = ReaderFamily(
    name="dense",
    retriever="indexmill.retrieve.passage_vectors:Dense",
    parameters="indexmill.retrieve.passage_vectors:DenseParameters",
    always=True,
    fusion=Fusion(weight=1.0, place=3, beside_reader=0.8),
)


def _declared(name: str) -> ReaderFamily:
    family: ReaderFamily = load(f"indexmill.families.{name}.family:FAMILY")
    return family


METHODS: dict[str, ReaderFamily] = {
    family.name: family
    for family in (
        _FUSED,
        _declared("tri_graph"),
        _declared("zoom_graph"),
        _declared("lsh_tree"),
        _declared("community_tree"),
        _declared("heterograph"),
        _DENSE,
        _declared("bm25"),
    )
}
"""All methods, best first; the default of a retrieval is the first that the snapshot supports."""


def available(manifest: Manifest) -> tuple[str, ...]:
    """Return the names of the methods that a snapshot supports, best first."""
    return tuple(family.name for family in families_of(manifest))


def families_of(manifest: Manifest) -> tuple[ReaderFamily, ...]:
    """Return the declarations of the methods that a snapshot supports, best first."""
    return tuple(family for family in METHODS.values() if family.always or family.name in manifest.families)


def retriever_of(artifacts: Artifacts, name: str) -> Retriever:
    """Open a method's retriever, once. Raises BadInput for an unknown method, FamilyNotFound for a missing family."""
    return artifacts.once(_RETRIEVER, lambda: _open_retriever(artifacts, name), name)


def _open_retriever(artifacts: Artifacts, name: str) -> Retriever:
    supported = available(artifacts.manifest)
    if name not in METHODS:
        raise BadInput(f"there is no method {name!r}; this snapshot has {', '.join(supported)}")
    if name not in supported:
        raise FamilyNotFound(f"{artifacts.path}: the snapshot does not contain {name!r}; it has {', '.join(supported)}")
    retriever: Retriever = load(METHODS[name].retriever)(artifacts)
    return retriever


def check_family(manifest: Manifest, where: object, name: str, missing: str) -> None:
    """Raise FamilyNotFound if a snapshot lacks a family. missing: text appended to the message."""
    if name not in manifest.families:
        raise FamilyNotFound(f"{where}: the snapshot does not contain {name!r}{missing}")


def provided(artifacts: Artifacts, what: str) -> Any:
    """Return the object that a family of the snapshot provides (``ReaderFamily.provides``); None if none does."""
    for family in families_of(artifacts.manifest):
        if what in family.provides:
            return load(family.provides[what])(artifacts)
    return None


def words_of(artifacts: Artifacts) -> TermIndex | None:
    """Return the term index of the snapshot; None if it has no postings. Raises CorruptBlob."""
    return cast("TermIndex | None", provided(artifacts, "words"))


def enable(artifact: str) -> str:
    """Return the line of configuration that enables the first family that reads an artifact."""
    name = next(family.name for family in METHODS.values() if artifact in family.artifacts)
    return f"`families: {{{name}: {{enabled: true}}}}`"
