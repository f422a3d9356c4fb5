"""Small snapshots for the reader's tests, published in a store as a build would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import JsonValue

from indexmill.models.embedder import HashEmbedder
from indexmill.models.recogniser import WordListRecogniser
from indexmill.retrieve.directions import directions_of
from indexmill.retrieve.matrices import Matrices, Sparse, both_ways
from indexmill.retrieve.schemas import PACKS
from indexmill.snapshot import Snapshot
from indexmill.store.artifact_listing import Artifact
from indexmill.store.canonical import canonical_json, content_id, digest_of
from indexmill.store.exported import exported_name
from indexmill.store.layout import BRANCH, alias_name, ref_name
from indexmill.store.manifest import Alias, Corpus, FamilyRecord, LanguageCounts, Manifest, Ref
from indexmill.store.pack_schema import schema_of, shape_problem, split_dimension
from indexmill.store.packs import write_pack
from indexmill.text.canonical_names import NameIndex, canonical_name, entity_id
from schemas.tables import DOCUMENTS, ENTITIES, MENTIONS, PASSAGES, SENTENCES
from storage.folder import FolderStore, init_folder
from storage.lineage import Lineage
from storage.lineage import put as put_lineage
from storage.publish import describe
from storage.table_blobs import read_table, table_bytes
from tasks.families.bm25.postings import postings
from tasks.families.lsh_tree.tables import LSH_SUMMARIES
from tasks.stages.resolve.mention_links import Mentioned, mention_links

EMBEDDER = HashEmbedder()
RECOGNISER = WordListRecogniser(["Ada Venn", "Marrow Bridge", "Ilse", "Tallow", "Grey Hills"])


@dataclass(frozen=True)
class Text:
    """A document of the test: its passages are the paragraphs of its text, in these sections or in none.

    locations: start, page and, if known, box of each.
    """

    id: str
    title: str
    text: str
    metadata: dict[str, JsonValue] = field(default_factory=dict)
    source: str | None = None
    sections: tuple[str, ...] = ()
    locations: tuple[tuple[int, int, Sequence[float] | None], ...] = ()
    language: str = "en"


WORLD = {
    "p0": (
        Text(
            "bridge",
            "Marrow Bridge",
            "The Marrow Bridge crosses the Ilse.\n\nAda Venn paid for the bridge.",
            sections=("", "Money\nGifts"),
        ),
        Text("venn", "Ada Venn", "Ada Venn was a clockmaker. She was born in Tallow."),
    ),
    "p1": (
        Text("ilse", "Ilse", "The Ilse is a cold river. It rises in the Grey Hills."),
        Text("tallow", "", "Tallow is a town of lamps."),
    ),
}


def matrices_of(
    mentions: Sequence[tuple[int, int, int, str]],
    sentence_passage: Sequence[int],
    entities: int,
    passage_document: Sequence[int],
) -> Matrices:
    """The matrices of mentions: the rows of passage, sentence (-1: the title) and entity, and the kind of each."""
    passage, sentence, entity = np.array([row[:3] for row in mentions], np.int64).reshape(-1, 3).T
    kind = np.array([row[3] for row in mentions], "U8")
    begins = np.searchsorted(sentence_passage, np.arange(len(passage_document) + 1))
    found = Mentioned(passage, sentence, entity, kind == "title", kind == "subject", begins, entities)
    mentions_of, contents = found.sentences(), found.passages()
    assert contents.counts is not None
    pairs = {(passage_document[one], other) for one, other in zip(passage.tolist(), entity.tolist(), strict=True)}
    return Matrices(
        *both_ways(owners_of(mentions_of), mentions_of.indices, None, len(sentence_passage), entities),
        *both_ways(owners_of(contents), contents.indices, contents.counts, len(passage_document), entities),
        np.bincount(contents.indices, contents.counts, entities).astype(np.int64),
        np.bincount([entity for _, entity in sorted(pairs)], minlength=entities),
    )


def owners_of(matrix: Sparse) -> np.ndarray:
    """The row of every link."""
    return np.arange(len(matrix)).repeat(np.diff(matrix.indptr))


def sparse_of(links: Sequence[Sequence[int]]) -> Sparse:
    """A matrix with these columns in each row."""
    indptr = np.cumsum([0, *map(len, links)]).astype(np.int64)
    return Sparse(indptr, np.array([column for row in links for column in row], np.int32))


@dataclass(frozen=True)
class Layout:
    """A tree as packs hold it: layer after layer, by id within a layer.

    orders: of each layer, its nodes, as given, by id. rows: the row of every node as given. arrays: its links.
    """

    orders: list[list[int]]
    rows: list[list[int]]
    offsets: np.ndarray
    arrays: dict[str, np.ndarray]

    @classmethod
    def of(cls, ids: Sequence[Sequence[str]], members: Sequence[Sequence[Sequence[int]]]) -> Layout:
        """ids: by layer. members: of the nodes above the leaves, by place in the layer below as given."""
        orders = [sorted(range(len(own)), key=own.__getitem__) for own in ids]
        offsets = np.cumsum([0, *map(len, ids)]).astype(np.int64)
        rows = [
            (np.argsort(order) + first).tolist() for order, first in zip(orders, offsets[:-1].tolist(), strict=True)
        ]
        parents = np.full(offsets[-1], -1, np.int32)
        children = []
        for number, layer in enumerate(members, start=1):
            for one in orders[number]:
                children.append(sorted(rows[number - 1][member] for member in layer[one]))
                parents[children[-1]] = rows[number][one]
        return cls(orders, rows, offsets, {"parents": parents, **sparse_of(children).arrays("children")})

    @property
    def above(self) -> np.ndarray:
        """The number of each parent in its layer, for a tree whose roots are in the uppermost one."""
        inner, ends = self.arrays["parents"][: self.offsets[-2]], self.offsets[1:-1]
        assert (inner >= 0).all()
        return (inner - ends.repeat(np.diff(self.offsets[:-1]))).astype(np.uint8)


def halves(order: Sequence[int], ids: Sequence[str]) -> list[tuple[str, list[int]]]:
    """What each of two shards holds by the ids; no shard that is empty."""
    found = [(half, [one for one in order if (ids[one] >= "8") == (half == "1")]) for half in "01"]
    return [(half, held) for half, held in found if held]


class SnapshotWriter:
    """Collects artifacts and publishes them as the next version of a store."""

    def __init__(self, path: Path) -> None:
        self.store: FolderStore = init_folder(path)
        self.artifacts: list[Artifact] = []
        self.families: dict[str, FamilyRecord] = {}
        self.models: dict[str, object] = {"encoder": EMBEDDER.fingerprint.as_dict()}
        self.configuration: dict[str, JsonValue] = {}
        self.languages: dict[str, LanguageCounts] = {}
        self.documents = 0
        self.passages = 0
        self._mentions: list[tuple[str, str]] = []
        self._tables: dict[str, list[pa.Table]] = {}
        self._texts: dict[str, tuple[list[str], list[str], list[str]]] = {}
        self._titles: dict[str, dict[str, np.ndarray]] = {}

    def table(self, name: str, table: pa.Table, schema: pa.Schema) -> None:
        self._keep(name, "table", table_bytes(table, schema))

    def arrays(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        self._keep(name, "arrays", write_pack(None, arrays))

    def pack(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Arrays as their schema has them; zeros for those that no test looks at."""
        schema = schema_of(name, PACKS)
        assert schema is not None
        sizes = {"dimensions": EMBEDDER.dimension}
        for one, array in arrays.items():
            assert not shape_problem(one, array.shape, schema.arrays[one], sizes)
        zeros = {
            one: np.zeros([more + sizes.get(length, 0) for length, more in map(split_dimension, its.shape)], its.dtype)
            for one, its in schema.arrays.items()
            if one not in arrays
        }
        self.arrays(name, schema.conform(zeros | dict(arrays)))

    def file(self, name: str, data: bytes) -> None:
        self._keep(name, "file", data)

    def _keep(self, name: str, kind: Literal["table", "arrays", "file"], data: bytes) -> None:
        self.artifacts.append(describe(self.store, name, kind, self.store.put_blob(data)))

    def shard(self, label: str, texts: Sequence[Text]) -> None:
        """The documents, passages, sentences and vectors of one shard, ordered as a part is."""
        texts = sorted(texts, key=lambda text: text.id)
        documents = [
            {
                "document_id": text.id,
                "title": text.title,
                "text": text.text,
                "source": text.source,
                "metadata": canonical_json(text.metadata).decode().strip(),
                "content_hash": digest_of((text.text + (text.source or "")).encode()),
                "locations": [dict(zip(("start", "page", "box"), one, strict=True)) for one in text.locations] or None,
            }
            for text in texts
        ]
        passages, sentences, spoken = [], [], []
        for text in texts:
            start = 0
            for ordinal, paragraph in enumerate(text.text.split("\n\n")):
                start = text.text.index(paragraph, start)
                passage_id = content_id("passage", text.id, paragraph, "0")
                passages.append(
                    {
                        "passage_id": passage_id,
                        "document_id": text.id,
                        "ordinal": ordinal,
                        "start": start,
                        "end": start + len(paragraph),
                        "text": paragraph,
                        "tokens": len(paragraph.split()),
                        "section": text.sections[ordinal] if text.sections else "",
                        "language": text.language,
                    }
                )
                at = 0
                for number, sentence in enumerate(paragraph.split(". ")):
                    at = paragraph.index(sentence, at)
                    end = min(at + len(sentence) + 1, len(paragraph))
                    sentences.append({"passage_id": passage_id, "ordinal": number, "start": at, "end": end})
                    spoken.append(paragraph[at:end])
        self.table(f"documents/{label}", pa.Table.from_pylist(documents, DOCUMENTS), DOCUMENTS)
        self.table(f"passages/{label}", pa.Table.from_pylist(passages, PASSAGES), PASSAGES)
        self.table(f"sentences/{label}", pa.Table.from_pylist(sentences, SENTENCES), SENTENCES)
        self.pack(
            f"vectors/{label}",
            {
                "passages": EMBEDDER.encode([one["text"] for one in passages]),
                "sentences": directions_of(EMBEDDER.encode(spoken)),
            },
        )
        title_of = {text.id: text.title for text in texts}
        self._texts[label] = (
            [title_of[str(one["document_id"])] for one in passages],
            [str(one["text"]) for one in passages],
            [str(one["language"]) for one in passages],
        )
        vectors = directions_of(EMBEDDER.encode([text.title or "none" for text in texts]))
        vectors[[not text.title for text in texts]] = 0
        owners = [[text.id for text in texts].index(str(one["document_id"])) for one in passages]
        self._titles[label] = {"vectors": vectors, "passage_document": np.array(owners, np.int32)}
        self._titles[label]["text_keys"] = np.zeros((len(texts), 16), np.uint8)
        self.documents += len(documents)
        self.passages += len(passages)
        mentions = []
        for passage in passages:
            inside = [one for one in sentences if one["passage_id"] == passage["passage_id"]]
            mentions += self._recognise(title_of[str(passage["document_id"])], passage, inside)
        rows = (documents, passages, sentences, mentions)
        schemas = (DOCUMENTS, PASSAGES, SENTENCES, MENTIONS)
        self._tables[label] = [pa.Table.from_pylist(*one) for one in zip(rows, schemas, strict=True)]

    def _recognise(
        self, title: str, passage: Mapping[str, object], sentences: Sequence[dict[str, object]]
    ) -> list[dict[str, object]]:
        """The mentions of one passage."""
        found: list[dict[str, object]] = []
        text = str(passage["text"])
        for mention in RECOGNISER.recognise(title, text):
            surface = (title if mention.field == "title" else text)[mention.start : mention.end]
            sentence = next((i for i, one in enumerate(sentences) if mention.start < int(str(one["end"]))), 0)
            found.append(
                {
                    "passage_id": passage["passage_id"],
                    "sentence": -1 if mention.field == "title" else sentence,
                    "entity_id": entity_id(canonical_name(surface)),
                    "kind": mention.kind,
                }
            )
            self._mentions.append((str(passage["passage_id"]), surface))
        return found

    def tri_graph(self, every_name: int = 1, **parameters: JsonValue) -> None:
        """The tri_graph family over the shards written so far; every n-th entity has a vector of its name."""
        surfaces = sorted({surface for _, surface in self._mentions}, key=lambda one: entity_id(canonical_name(one)))
        rows = [
            {
                "entity_id": entity_id(canonical_name(surface)),
                "name": canonical_name(surface),
                "surface": surface,
                "mentions": sum(other == surface for _, other in self._mentions),
                "passages": len({passage for passage, other in self._mentions if other == surface}),
                "documents": 1,
            }
            for surface in surfaces
        ]
        half = len(rows) // 2
        for label, some in (("e0", rows[:half]), ("e1", rows[half:])):
            self.table(f"entities/{label}", pa.Table.from_pylist(some, ENTITIES), ENTITIES)
            vectors = directions_of(EMBEDDER.encode([str(row["name"]) for row in some]))
            held = slice(0, len(some), every_name)
            keys = NameIndex.keys([str(row["entity_id"]) for row in some])
            self.pack(f"names/{label}", {"vectors": vectors[held], "entity_keys": keys[held]})
        for label, tables in self._tables.items():
            self.pack(f"mention_links/{label}", mention_links(*tables))
        self.families["tri_graph"] = FamilyRecord(parameters=parameters, counts={"entities": len(surfaces)})

    def titles(self, **parameters: JsonValue) -> None:
        """The vectors of the titles of the shards written so far; the parameters are those of dense."""
        for label, arrays in self._titles.items():
            self.arrays(f"titles/{label}", arrays)
        self.families["dense"] = FamilyRecord(parameters=parameters, counts={})

    def bm25(self, **parameters: JsonValue) -> None:
        """The bm25 family over the shards written so far."""
        for label, (titles, texts, languages) in self._texts.items():
            self.pack(f"bm25/{label}", postings(titles, texts, 2, languages))
        self.families["bm25"] = FamilyRecord(parameters=parameters, counts={"passages": self.passages})

    def lsh_tree(
        self,
        layers: Sequence[Sequence[tuple[str, Sequence[int]]]],
        stand_ins: Sequence[str] = (),
        vectors: Mapping[str, Sequence[float]] | None = None,
        **parameters: JsonValue,
    ) -> None:
        """The lsh_tree family over the shards written so far.

        layers: from the lowest up, each summary's text and its children, by their place in the layer below as given.
        vectors: of texts, in place of the encoder's.
        """
        ids = [[f"{row:08}" for row in range(self.passages)]]
        for number, layer in enumerate(layers, start=1):
            ids.append([content_id("summary", str(number), text) for text, _ in layer])
        layout = Layout.of(ids, [[children for _, children in layer] for layer in layers])
        for number, layer in enumerate(layers, start=1):
            for half, held in halves(layout.orders[number], ids[number]):
                label, own = f"{chr(96 + number)}{half}", [ids[number][one] for one in held]
                texts = [layer[one][0] for one in held]
                self._summaries(label, number, own, texts, stand_ins)
                encoded = [(vectors or {}).get(text, EMBEDDER.encode([text])[0]) for text in texts]
                keys = np.array([list(bytes.fromhex(one).ljust(32)) for one in own], np.uint8)
                self.pack(f"summary_vectors/{label}", {"keys": keys, "vectors": np.array(encoded, np.float16)})
        tree = {"layer_offsets": layout.offsets, "above": layout.above, "bounds": np.array([2, 3, 5, 0])}
        self.pack("lsh_tree/tree", tree | {"stand_ins": np.zeros(sum(map(len, ids[1:])), np.uint8)})
        parents = layout.arrays["parents"].tolist()
        counts = {"layers": len(layers), "nodes": len(parents), "roots": parents.count(-1)}
        self.families["lsh_tree"] = FamilyRecord(parameters=parameters, counts=counts)

    def _summaries(
        self, label: str, layer: int, ids: Sequence[str], texts: Sequence[str], stand_ins: Sequence[str]
    ) -> None:
        rows = [
            {
                "node_id": node_id,
                "layer": layer,
                "text": text,
                "tokens": len(text.split()),
                "digest": digest_of(text.encode()),
                "stand_in": text in stand_ins,
            }
            for node_id, text in zip(ids, texts, strict=True)
        ]
        self.table(f"summaries/{label}", pa.Table.from_pylist(rows, LSH_SUMMARIES), LSH_SUMMARIES)

    def manifest(self) -> Manifest:
        return Manifest(
            corpus=Corpus(
                fingerprint="f" * 64, documents=self.documents, passages=self.passages, languages=self.languages
            ),
            configuration=self.configuration,
            models=self.models,
            artifacts=tuple(self.artifacts),
            families=self.families,
            lineage=put_lineage(self.store, Lineage()),
        )

    def publish(self, version: int = 1, note: str = "") -> Ref:
        ref = Ref(
            version=version,
            manifest=self.store.put_blob(self.manifest().to_bytes()),
            parent=version - 1 or None,
            epoch=version,
            run_id=f"run-{version}",
            created=f"2026-01-{version:02d}T02:00:00Z",
            note=note,
        )
        assert self.store.create(ref_name(BRANCH, version), ref.to_bytes())
        return ref


def read_written(writer: SnapshotWriter, name: str) -> pa.Table:
    """A table that was written."""
    (digest,) = (one.digest for one in writer.artifacts if one.name == name)
    return read_table(writer.store, digest)


def point(store: FolderStore, alias: str, version: int, number: int = 1) -> None:
    """Make an alias point to a version."""
    record = Alias(alias=alias, number=number, version=version, created="2026-01-01T00:00:00Z")
    assert store.create(alias_name(alias, number), record.to_bytes())


def writer_of(path: Path, world: Mapping[str, Sequence[Text]] = WORLD) -> SnapshotWriter:
    """A writer that has the documents of these shards."""
    writer = SnapshotWriter(path)
    for label, texts in world.items():
        writer.shard(label, texts)
    return writer


def publish(
    path: Path, world: Mapping[str, Sequence[Text]] = WORLD, version: int = 1, note: str = ""
) -> SnapshotWriter:
    """Publish the documents of these shards as a version with dense retrieval alone."""
    writer = writer_of(path, world)
    writer.publish(version, note)
    return writer


def export(snapshot: Snapshot, folder: Path) -> None:
    """Write a snapshot as `indexmill export` lays it out."""
    folder.mkdir()
    (folder / "manifest.json").write_bytes(snapshot.manifest.to_bytes())
    for artifact in snapshot.manifest.artifacts:
        path = folder / exported_name(artifact, snapshot.manifest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(snapshot.file(artifact.name).read_bytes())
