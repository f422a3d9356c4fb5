"""Stages `embed` and `embed_names`: vectors, copied from earlier parts where possible, and computed otherwise.

Vectors are the expensive rows of a build. A row key hashes everything that determines a vector, except the model: the
embedded text for a passage vector, that text and the span for a pooled sentence vector, and the sentence's own text for
a separate sentence vector. The model is in the receipt's `row_space`, so two models never share a row.

Vectors are also most of a snapshot's bytes. So sentence vectors, which are only compared with a question, are stored as
directions quantised to 8 bits (`indexmill.retrieve.directions`), and a shard's rows are cut into pieces, so that a
changed document rewrites only its piece. Pieces are the leaves of the trie of the shard's documents
(`tasks.core.shards`), each with at most PIECE_BYTES of vectors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

from indexmill.models.embedder import Embedder
from indexmill.retrieve.directions import Directions, directions_of
from indexmill.retrieve.shared_schema import VECTORS
from indexmill.store.canonical import digest_of_texts
from indexmill.store.pack_schema import Array, PackSchema
from tasks.core.encoder import EncoderSettings, encoder_of
from tasks.core.encoder_estimate import texts_to_send
from tasks.core.estimate import EncoderTexts, Estimate, Expected
from tasks.core.groups import as_words
from tasks.core.isolate import DocumentsRefused, Failing
from tasks.core.run import Run
from tasks.core.shards import hash_order, id_hashes, leaves
from tasks.core.stage import Output, Outputs, Part, Stage
from tasks.core.unchanged import Unchanged, unchanged
from tasks.llm.vectors import TextsRefused
from tasks.stages.split.plain import TEXTS, read_texts
from tasks.stages.split.split import embedded_text

Floats = NDArray[np.float32]
Keys = NDArray[np.uint8]
Span = tuple[int, int]
KEY_BYTES = 16

PIECE_BYTES = 1 << 19
"""The maximum bytes of a piece's vectors, unless one document alone has more. Pieces of half or a quarter of this size
would save small incremental builds a megabyte, but copying a snapshot would take two or four times as many requests."""

TEXT_VECTORS = PackSchema(
    "vectors of texts, each of which belongs to an object with an id",
    {
        "keys": Array("uint8", ("texts", 32), "the SHA-256 of each id"),
        "text_keys": Array("uint8", ("texts", KEY_BYTES), "the row key of each text"),
        "vectors": Array("float32", ("texts", "dimensions"), "the vector of each text"),
    },
)


class Vectors:
    """Vectors of earlier parts, looked up by row key. They stay on disk until they are copied.

    `sources` are pairs of keys (n, 16) uint8 and vectors (n, d) float32, or other arrays with a row for each key. If
    several sources have a key, the first is used.
    """

    def __init__(self, sources: Iterable[tuple[Keys, NDArray[Any]]]) -> None:
        self._sources = [(as_words(keys), vectors) for keys, vectors in sources if len(keys)]

    def holds(self, keys: Sequence[bytes]) -> NDArray[np.bool_]:
        """Return a mask (n,), True for the keys that any source contains."""
        hits = np.zeros(len(keys), dtype=bool)
        for rows, _, _ in self._matches(keys):
            hits[rows] = True
        return hits

    def copy_into(self, keys: Sequence[bytes], vectors: NDArray[Any]) -> NDArray[np.bool_]:
        """Fill the rows of `vectors` (n, d) whose key any source contains; return the mask (n,) of these rows."""
        copied = np.zeros(len(keys), dtype=bool)
        for rows, source, at in self._matches(keys):
            vectors[rows] = source[at]
            copied[rows] = True
        return copied

    def _matches(self, keys: Sequence[bytes]) -> Iterator[tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]]:
        """Yield (rows of `keys`, source vectors, their rows) for each source, without keys of earlier sources."""
        requested = as_words(keys_array(keys))
        missing = np.arange(len(requested))
        for source_keys, vectors in self._sources:
            if not len(missing):
                return
            order = np.argsort(source_keys, kind="stable")  # stable: among equal keys the first row wins
            at = np.searchsorted(source_keys, requested[missing], sorter=order)
            at = order[np.minimum(at, len(source_keys) - 1)]
            hit = source_keys[at] == requested[missing]
            yield missing[hit], vectors, at[hit]
            missing = missing[~hit]


def row_key(*parts: str) -> bytes:
    """Return the key of a vector: 16 bytes of SHA-256 over the length-prefixed strings that determine the vector."""
    return bytes.fromhex(digest_of_texts(*parts))[:KEY_BYTES]


def span_key(text: str, span: Span) -> bytes:
    """Return the key of a sentence vector that is pooled from the text around it."""
    return row_key(text, f"{span[0]}:{span[1]}")


def missing_texts(keys: Sequence[bytes], available: NDArray[np.bool_]) -> dict[bytes, int]:
    """Return the keys whose vectors must be computed, each with its first row. available: mask of keys with vectors."""
    first_row: dict[bytes, int] = {}
    for row in np.flatnonzero(~available).tolist():
        first_row.setdefault(keys[row], row)
    return first_row


def unknown_texts(texts: Sequence[str], reusable: Vectors) -> list[str]:
    """Return the distinct texts without a reusable vector."""
    keys = [row_key(text) for text in texts]
    return [texts[row] for row in missing_texts(keys, reusable.holds(keys)).values()]


def missing_passages(
    keys: Sequence[bytes],
    spans: Sequence[Sequence[Span]],
    available: NDArray[np.bool_],
    spans_available: NDArray[np.bool_],
) -> list[list[int]]:
    """Group the rows of equal passages that must be encoded because a passage or sentence vector is missing.

    `spans[i]` are the sentences of passage i. `available` and `spans_available` are masks of the passages, and of the
    sentences of all passages in order, whose vectors exist.
    """
    bounds = np.cumsum([0, *(len(passage_spans) for passage_spans in spans)])
    missing: dict[tuple[bytes, tuple[Span, ...]], list[int]] = {}
    for row, (key, passage_spans) in enumerate(zip(keys, spans, strict=True)):
        if not available[row] or not spans_available[bounds[row] : bounds[row + 1]].all():
            missing.setdefault((key, tuple(passage_spans)), []).append(row)
    return list(missing.values())


@dataclass(frozen=True)
class TextVectors:
    """The vectors of a stage that embeds one text per row: those of earlier parts, and an estimate of the others.

    texts: returns the texts of a part. keys: the name of the array of row keys in the stage's packs.
    """

    texts: Callable[[Part[Any]], list[str]]
    keys: str = "text_keys"

    def reusable(self, part: Part[Any], array: str = "vectors") -> Vectors:
        """Return the vectors in earlier parts, looked up by row key. array: the name of their array in the packs."""
        return Vectors((pack[self.keys], pack[array]) for pack in part.reusable_packs())

    def encodes(self, part: Part[Any], expected: Expected) -> EncoderTexts:
        """Return the part's texts that have no reusable vector."""
        return texts_to_send(part, unknown_texts(self.texts(part), self.reusable(part)))

    def estimate(self, part: Part[Any], expected: Expected) -> Estimate:
        """Return the exact numbers of vectors to compute and to reuse."""
        keys = [row_key(text) for text in self.texts(part)]
        computed = len(missing_texts(keys, self.reusable(part).holds(keys)))
        return Estimate(counts={"vectors_made": computed, "vectors_reused": len(keys) - computed})


def embed_texts(
    texts: Sequence[str],
    encode: Callable[[list[str]], NDArray[Any]],
    reusable: Vectors,
    dimension: int,
    dtype: DTypeLike = np.float32,
) -> tuple[NDArray[Any], list[bytes], int]:
    """Return vectors (n, d), their row keys, and how many were computed; equal texts are computed once."""
    keys = [row_key(text) for text in texts]
    vectors = np.empty((len(texts), dimension), dtype=dtype)
    copied = reusable.copy_into(keys, vectors)
    first_row = missing_texts(keys, copied)
    computed = encode([texts[row] for row in first_row.values()]) if first_row else vectors[:0]
    at = {key: position for position, key in enumerate(first_row)}
    if first_row:
        missing = np.flatnonzero(~copied)
        vectors[missing] = computed[[at[keys[row]] for row in missing]]
    return vectors, keys, len(first_row)


def wanted_texts(
    passages: Sequence[str], sentences: Sequence[str], known_passages: Vectors, known_sentences: Vectors
) -> dict[bytes, str]:
    """Return the distinct passages and sentences that have no reusable vector, by row key."""
    missing: dict[bytes, str] = {}
    for texts, reusable in ((passages, known_passages), (sentences, known_sentences)):
        keys = [row_key(text) for text in texts]
        missing |= {key: texts[row] for key, row in missing_texts(keys, reusable.holds(keys)).items()}
    return missing


def embed_separately(
    passages: Sequence[str],
    sentences: Sequence[str],
    encode: Callable[[list[str]], Floats],
    known_passages: Vectors,
    known_sentences: Vectors,
    dimension: int,
) -> tuple[Floats, list[bytes], Directions, list[bytes], int]:
    """Embed passages and sentences separately, but in one call of `encode`. Returns the same as `embed_passages`."""
    missing = wanted_texts(passages, sentences, known_passages, known_sentences)
    computed = dict(zip(missing, encode(list(missing.values())), strict=True)) if missing else {}

    def encoded(texts: list[str]) -> Floats:
        return np.stack([computed[row_key(text)] for text in texts])

    vectors, passage_keys, count = embed_texts(passages, encoded, known_passages, dimension)
    of_sentences, sentence_keys, more = embed_texts(
        sentences, lambda some: directions_of(encoded(some)), known_sentences, dimension, np.int8
    )
    return vectors, passage_keys, of_sentences, sentence_keys, count + more


def embed_passages(
    texts: Sequence[str],
    spans: Sequence[Sequence[Span]],
    embedder: Embedder,
    known_passages: Vectors,
    known_sentences: Vectors,
) -> tuple[Floats, list[bytes], Directions, list[bytes], int]:
    """Return the vectors of passages and, pooled in the same pass, the directions of their sentences.

    `spans[i]` are the sentences of `texts[i]`, as (start, end) offsets. A passage is encoded if its vector or the
    vector of any of its sentences is missing. Returns passage vectors, their keys, sentence directions in order, their
    keys, and the number of vectors computed.
    """
    keys = [row_key(text) for text in texts]
    span_keys = [
        span_key(text, span) for text, passage_spans in zip(texts, spans, strict=True) for span in passage_spans
    ]
    vectors = np.empty((len(texts), embedder.dimension), dtype=np.float32)
    span_vectors = np.empty((len(span_keys), embedder.dimension), dtype=np.int8)
    copied = known_passages.copy_into(keys, vectors)
    missing = missing_passages(keys, spans, copied, known_sentences.copy_into(span_keys, span_vectors))
    if missing:
        first = [rows[0] for rows in missing]
        computed, pooled = embedder.encode_with_spans([texts[row] for row in first], [spans[row] for row in first])
        computed_spans = directions_of(pooled)
        bounds = np.cumsum([0, *(len(passage_spans) for passage_spans in spans)])
        starts = np.cumsum([0, *(len(spans[row]) for row in first)])
        for position, rows in enumerate(missing):
            for row in rows:
                vectors[row] = computed[position]
                span_vectors[bounds[row] : bounds[row + 1]] = computed_spans[starts[position] : starts[position + 1]]
    return vectors, keys, span_vectors, span_keys, _vectors_of(missing, spans)


def _vectors_of(missing: Sequence[Sequence[int]], spans: Sequence[Sequence[Span]]) -> int:
    return sum(1 + len(spans[rows[0]]) for rows in missing)


def keys_array(keys: Sequence[bytes]) -> Keys:
    """Return row keys as an array (n, 16) uint8."""
    return np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY_BYTES)


@dataclass(frozen=True, kw_only=True)
class EmbedStageSettings(EncoderSettings):
    """Settings of the `embed` stage. sentences: `pooled` or `separate`, as in the configuration."""

    sentences: str
    title_in_passage: bool


def settings_of(run: Run) -> EmbedStageSettings:
    """Return the settings of a run's parts."""
    encoder = run.opened_encoder
    return EmbedStageSettings(
        **encoder.settings,
        sentences=run.configuration.embed.sentences if encoder.pools_spans else "separate",
        title_in_passage=run.configuration.split.title_in_passage,
    )


def _known_passages(part: Part[Any]) -> Vectors:
    return Vectors((pack["passage_keys"], pack["passages"]) for pack in part.reusable_packs())


def _known_sentences(part: Part[Any]) -> Vectors:
    return Vectors((pack["sentence_keys"], pack["sentences"]) for pack in part.reusable_packs())


@dataclass(frozen=True)
class _Texts:
    """The texts to embed: the embedded texts of passages, and all their sentences, in order.

    documents: the document of each passage. spans: each passage's sentences, as offsets in its embedded text.
    sentences: the sentences as strings.
    """

    documents: list[str]
    passages: list[str]
    spans: list[list[Span]]
    sentences: list[str]

    @classmethod
    def of(cls, part: Part[EmbedStageSettings], chosen: NDArray[np.bool_]) -> _Texts:
        texts, plain = read_texts(part, part.table("documents"), part.table("passages").filter(pa.array(chosen)))
        bodies = texts.passages["text"].to_pylist()
        titles = texts.titles() if part.settings.title_in_passage else [""] * len(bodies)
        embedded = list(map(embedded_text, titles, bodies, plain.headings))
        shifts = [len(text) - len(body) for text, body in zip(embedded, bodies, strict=True)]
        position = pc.index_in(texts.sentences["passage_id"], texts.passages["passage_id"].combine_chunks())
        starts, ends = (texts.sentences[name].to_pylist() for name in ("start", "end"))
        spans: list[list[Span]] = [[] for _ in embedded]
        sentences = []
        for row, start, end in zip(position.to_pylist(), starts, ends, strict=True):
            spans[row].append((start + shifts[row], end + shifts[row]))
            sentences.append(bodies[row][start:end])
        return cls(texts.passages["document_id"].to_pylist(), embedded, spans, sentences)


def _compute(part: Part[EmbedStageSettings]) -> Outputs:
    documents = part.table("documents", "document_id", "content_hash")
    passages = part.table("passages", "passage_id", "document_id")
    sentences = part.table("sentences", "passage_id")
    same, is_unchanged = unchanged(part, documents)
    owner = pc.index_in(passages["document_id"], documents["document_id"].combine_chunks()).to_numpy()
    position = pc.index_in(sentences["passage_id"], passages["passage_id"].combine_chunks()).to_numpy()
    fresh = ~is_unchanged[owner]
    arrays: dict[str, NDArray[Any]] = {}
    computed = 0
    if fresh.any() or not same:  # otherwise no encoder is needed
        arrays, computed = _embedded(part, _Texts.of(part, fresh))
    if same:
        arrays = _joined(same, arrays, passages, position, fresh)
    total = len(passages) + len(sentences)
    pieces = _pieces(part.job.shard, documents, owner, position, arrays)
    return Outputs(packs=pieces, counts={"vectors_made": computed, "vectors_reused": total - computed})


def _pieces(
    shard: str,
    documents: pa.Table,
    owner: NDArray[np.integer],
    position: NDArray[np.integer],
    arrays: Mapping[str, NDArray[Any]],
) -> dict[str, dict[str, NDArray[Any]]]:
    """Cut the arrays into pieces. owner: the row of each passage's document. position: of each sentence's passage."""
    rows = {"passage": np.bincount(owner, minlength=len(documents))}
    rows["sentence"] = np.bincount(owner[position], minlength=len(documents))
    of = {name: name.removesuffix("_keys").removesuffix("s") for name in arrays}
    weights = sum(rows[of[name]] * array.dtype.itemsize * array.shape[1] for name, array in arrays.items())
    ends = {name: np.cumsum([0, *counts]) for name, counts in rows.items()}
    hashes = id_hashes(documents.column("document_id").to_pylist())
    return {
        f"vectors/{label}": {name: array[slice(*ends[of[name]][[low, high]])] for name, array in arrays.items()}
        for label, low, high in leaves(hashes, hash_order(hashes), np.asarray(weights), PIECE_BYTES, shard)
    }


def _embedded(part: Part[EmbedStageSettings], inputs: _Texts) -> tuple[dict[str, NDArray[Any]], int]:
    """Return the arrays of some passages and their sentences, and the number of vectors computed."""
    embedder = encoder_of(part)
    dimension = embedder.dimension
    known_passages, known_sentences = _known_passages(part), _known_sentences(part)
    if part.settings.sentences == "pooled":
        vectors, keys, span_vectors, span_keys, computed = embed_passages(
            inputs.passages, inputs.spans, embedder, known_passages, known_sentences
        )
    else:
        options = known_passages, known_sentences, dimension
        try:
            separate = embed_separately(inputs.passages, inputs.sentences, embedder.encode, *options)
        except TextsRefused as refused:
            missing = wanted_texts(inputs.passages, inputs.sentences, known_passages, known_sentences)
            rejected = {text for at, text in enumerate(missing.values()) if at in refused.refused}
            failing = list(_documents_with(part, inputs, rejected, str(refused)))
            raise DocumentsRefused(failing) from None
        vectors, keys, span_vectors, span_keys, computed = separate
    return {
        "passages": vectors,
        "passage_keys": keys_array(keys),
        "sentences": span_vectors,
        "sentence_keys": keys_array(span_keys),
    }, computed


def _documents_with(
    part: Part[EmbedStageSettings], inputs: _Texts, texts: Collection[str], detail: str
) -> Iterator[Failing]:
    table = part.table("documents", "document_id", "content_hash")
    contents = dict(zip(table["document_id"].to_pylist(), table["content_hash"].to_pylist(), strict=True))
    sentences = iter(inputs.sentences)
    documents = set()
    for document, passage, spans in zip(inputs.documents, inputs.passages, inputs.spans, strict=True):
        document_texts = {passage, *itertools.islice(sentences, len(spans))}
        if not document_texts.isdisjoint(texts):
            documents.add(document)
    for document in sorted(documents):
        yield Failing(document, contents[document], kills=False, detail=detail)


def _joined(
    same: Sequence[Unchanged],
    computed: Mapping[str, NDArray[Any]],
    passages: pa.Table,
    position: NDArray[np.int64],
    fresh: NDArray[np.bool_],
) -> dict[str, NDArray[Any]]:
    """Return the arrays of all passages: computed for fresh passages, copied for the others."""
    joined: dict[str, NDArray[Any]] = {}
    for part in same:
        pack = part.joined("vectors")
        mine = pc.is_in(passages["document_id"], part.ids).to_numpy()
        rows, sentence_rows = part.vector_rows(passages["passage_id"].filter(pa.array(mine)))
        for names, at, source in (
            (("passages", "passage_keys"), mine, rows),
            (("sentences", "sentence_keys"), mine[position], sentence_rows),
        ):
            for name in names:
                if name not in joined:
                    joined[name] = np.empty((len(at), *pack[name].shape[1:]), dtype=pack[name].dtype)
                joined[name][at] = pack[name][source]
    for name, array in computed.items():
        joined[name][fresh if name.startswith("passage") else fresh[position]] = array
    return joined


def _fresh_texts(part: Part[EmbedStageSettings]) -> _Texts:
    """Return the texts of new or changed documents."""
    documents = part.table("documents", "document_id", "content_hash")
    owners = part.table("passages", "document_id")["document_id"]
    _, is_unchanged = unchanged(part, documents)
    return _Texts.of(part, ~is_unchanged[pc.index_in(owners, documents["document_id"].combine_chunks()).to_numpy()])


def _encodes(part: Part[EmbedStageSettings], expected: Expected) -> EncoderTexts:
    """Return the passages and sentences without a vector, each as a separate text."""
    inputs = _fresh_texts(part)
    reusable = _known_passages(part), _known_sentences(part)
    return texts_to_send(part, list(wanted_texts(inputs.passages, inputs.sentences, *reusable).values()))


def estimate(part: Part[EmbedStageSettings], expected: Expected) -> Estimate:
    """Return the exact number of vectors to compute."""
    inputs = _fresh_texts(part)
    keys = [row_key(text) for text in inputs.passages]
    available = _known_passages(part).holds(keys)
    known_sentences = _known_sentences(part)
    if part.settings.sentences == "pooled":
        span_keys = [
            span_key(text, span)
            for text, passage_spans in zip(inputs.passages, inputs.spans, strict=True)
            for span in passage_spans
        ]
        missing = missing_passages(keys, inputs.spans, available, known_sentences.holds(span_keys))
        computed = _vectors_of(missing, inputs.spans)
    else:
        sentence_keys = [row_key(text) for text in inputs.sentences]
        missing_sentences = missing_texts(sentence_keys, known_sentences.holds(sentence_keys))
        computed = len(missing_texts(keys, available)) + len(missing_sentences)
    total = part.rows_of("passages") + part.rows_of("sentences")
    return Estimate(counts={"vectors_made": computed, "vectors_reused": total - computed})


STAGE = Stage(
    "embed",
    version=3,
    rows_version=2,
    compute=_compute,
    libraries=("numpy",),
    estimate=estimate,
    encodes=_encodes,
    inputs=TEXTS,
    outputs=(Output("vectors", VECTORS, artifact="vectors/{label}", pieces=True),),
    per_document=True,
    moves_with_documents=True,
    uses_encoder=True,
)
