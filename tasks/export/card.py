"""The data card of a snapshot: the ``README.md`` of every export, which explains the folder to its recipients.

It states only facts from the manifest or an artifact, and no clock time, host or path, so the same snapshot has the
same card. Names, settings and titles are data: they are put in code spans that their content cannot close.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from indexmill.retrieve.method_registry import METHODS
from indexmill.retrieve.rights import Access
from indexmill.store.manifest import Manifest
from indexmill.store.sbom_reader import SBOM
from indexmill.text.counted import counted
from tasks.export.export_opening import opening
from tasks.text.markdown import code, json_block, table_of

_NAMES = {"llm": "summaries"}  # roles that the card shows under another name
_WRITTEN = {
    "recogniser": "mentions",
    "extractor": "units, unit_entities, extracted, relations",
    "describer": "described, related",
}
"""The tables that a model writes, by the model's role in the manifest; families add theirs."""

_NO_MODEL = "extractive"
"""The back-end that writes texts from sentences of the corpus, without a language model."""

_WHAT = "This folder comes from a snapshot of a retrieval index that indexmill built."
_SOURCE = (
    "The SHA-256 of its manifest identifies the snapshot. Everything in this card comes from the manifest or a file of "
    "the snapshot, except the version number, which the store assigns."
)
_NOT_RECORDED = (
    "Rows of the corpus that the build rejected are not in the snapshot, and its manifest does not count them. It "
    "records neither the languages nor the licences of the documents: ask the publisher."
)

_FOLDER = {
    "snapshot": "It is the whole snapshot, as a plain folder: tables as Parquet, arrays, and the manifest.",
    "graphrag": "It is a part of the snapshot, as the tables of GraphRAG 3.",
    "graphml": "It is a part of the snapshot, as graphs in GraphML.",
    "vectors": "It is a part of the snapshot: its texts with their vectors, as Parquet for vector databases.",
}


def card(
    manifest: Manifest,
    digest: str,
    *,
    form: str,
    version: int | None = None,
    files: Iterable[tuple[str, str]] = (),
    sbom: Mapping[str, Any] | None = None,
) -> str:
    """Return the card of an export as Markdown.

    digest: the SHA-256 of the manifest. form: the export's format. version: the first version with this manifest.
    files: the export's files, as (name, content). sbom: the snapshot's software bill of materials, if it has one.
    """
    corpus = manifest.corpus
    size = f"{counted(corpus.documents, 'document')} in {counted(corpus.passages, 'passage')}"
    facts = [
        *([("Version", f"first published as version {version} of its store")] if version is not None else []),
        ("Manifest", f"SHA-256 {code(digest)}"),
        ("Corpus", f"{size}; fingerprint of the set of documents {code(corpus.fingerprint)}"),
        ("Lineage", f"SHA-256 {code(manifest.lineage)}"),
        ("Format", f"{manifest.format_version}; readers of format {manifest.minimum_reader_version} and later open it"),
        *_rights(manifest),
    ]
    parts = [
        "# An indexmill snapshot",
        f"{_WHAT} {_FOLDER.get(form, f'It is a part of the snapshot, in the form {code(form)}.')} {_SOURCE}",
        table_of(("", ""), facts),
        *_listed("Files", ("file", "contents"), [(code(name), what) for name, what in files]),
        "## Counts",
        table_of(("", "rows"), [(code(name), f"{number:,}") for name, number in _counts(manifest)]),
        _NOT_RECORDED,
        *_families(manifest),
        *_models(manifest, sbom),
        *_written(manifest),
        *_settings(manifest),
        *_built(manifest, sbom),
        *opening(manifest, digest, form),
    ]
    return "\n\n".join(parts) + "\n"


def _rights(manifest: Manifest) -> Iterator[tuple[str, str]]:
    access = Access.of(manifest, "the snapshot")
    if access is not None:
        otherwise = "for nobody" if access.required else "for everyone"
        rule = (
            f"the field {code(access.field)} names the groups that may read a document; without it, it is {otherwise}"
        )
        yield (
            "Rights",
            f"{rule}. Readers apply it when they answer questions; the files of this folder are not filtered",
        )


def _encoder_licences(sbom: Mapping[str, Any] | None) -> list[str]:
    """Return the licences that a bill of materials states for the encoder's model."""
    licences = []
    for component in _dicts((sbom or {}).get("components")):
        if component.get("type") == "machine-learning-model":
            for entry in _dicts(component.get("licenses")):
                licence = entry.get("license")
                named = licence if isinstance(licence, dict) else {}
                licences.append(entry.get("expression") or named.get("id") or named.get("name"))
    return [licence for licence in licences if isinstance(licence, str)]


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _counts(manifest: Manifest) -> Iterator[tuple[str, int]]:
    yield "documents", manifest.corpus.documents
    yield "passages", manifest.corpus.passages
    yield from sorted(manifest.corpus.counts.items())


def _families(manifest: Manifest) -> Iterator[str]:
    rows = [
        (
            code(name),
            ", ".join(f"{number:,} {code(what)}" for what, number in sorted(family.counts.items())) or "-",
            code(family.parameters) if family.parameters else "the defaults",
            "also on the previous snapshot" if family.history_dependent else "on the corpus and the settings alone",
        )
        for name, family in sorted(manifest.families.items())
    ]
    yield from _listed("Index families", ("family", "counts", "retrieval parameters", "depends"), rows)


def _models(manifest: Manifest, sbom: Mapping[str, Any] | None) -> Iterator[str]:
    rows = []
    for role, recorded in sorted(manifest.models.items()):
        fingerprint = dict(recorded) if isinstance(recorded, dict) else {"fingerprint": recorded}
        name = fingerprint.pop("model", None) or fingerprint.pop("name", None) or fingerprint.get("backend") or ""
        licences = _encoder_licences(sbom) if role == "encoder" else []
        model = role == "encoder" or _language_model(recorded) is not None
        licence = ", ".join(map(code, licences)) or ("not recorded" if model else "-")
        rows.append((code(_NAMES.get(role, role)), code(name), licence, code(fingerprint)))
    yield from _listed("Models", ("for", "model", "licence", "fingerprint"), rows)


def _written(manifest: Manifest) -> Iterator[str]:
    tables = dict(_WRITTEN)
    for family in METHODS.values():
        tables |= family.written
    rows = []
    for role, recorded in sorted(manifest.models.items()):
        model = _language_model(recorded)
        if model is not None:
            rows.append((code(tables.get(role, role)), code(model)))
    yield "## What a language model wrote"
    if not rows:
        yield "Nothing: no language model was used. Texts that are not in the documents consist of sentences from them."
        return
    yield table_of(("tables", "language model"), rows)
    yield (
        "Graphs, trees and vectors that are computed from these tables depend on it. Everything else is computed from "
        "the documents. A language model may be wrong: check what it wrote against the passages behind it."
    )
    stand_ins = {name: family.counts.get("stand_ins", 0) for name, family in sorted(manifest.families.items())}
    fallbacks = ", ".join(f"{number:,} of {code(name)}" for name, number in stand_ins.items() if number)
    if fallbacks:
        yield f"For some texts the model gave no usable answer, and a fallback replaces it: {fallbacks} (`stand_in`)."


def _language_model(recorded: Any) -> str | None:
    if not isinstance(recorded, dict):
        return None
    backend, fingerprint = recorded.get("backend"), recorded.get("fingerprint")
    if isinstance(fingerprint, str) and fingerprint.startswith("llm/"):
        return fingerprint.removeprefix("llm/").rpartition("/")[0]
    if not isinstance(backend, str) or backend == _NO_MODEL or "weights" in recorded:
        return None
    return str(recorded.get("model") or backend)


def _settings(manifest: Manifest) -> Iterator[str]:
    yield "## Settings that shaped it"
    split = manifest.configuration.get("split")
    language = split.get("language") if isinstance(split, dict) else None
    if isinstance(language, str):
        yield f"Documents in any language are split into sentences by the rules of the language {code(language)}."
    yield json_block(manifest.configuration)


def _built(manifest: Manifest, sbom: Mapping[str, Any] | None) -> Iterator[str]:
    rows = [(code(name), code(value)) for name, value in sorted(manifest.environment.items())]
    yield from _listed("The environment that built it", ("", ""), rows)
    if sbom is not None:
        components = len(_dicts(sbom.get("components")))
        yield (
            f"The snapshot has a software bill of materials, {code(SBOM)} (CycloneDX): "
            f"{counted(components, 'component')} with their versions and licences."
        )


def _listed(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        yield f"## {title}"
        yield table_of(header, rows)
