"""Encoders of texts as vectors: the protocol, the pooling that every back-end shares, and a deterministic double.

A text's vector has the same bits whatever other texts are in the call, for two reasons. All texts in a pass have the
same token count, so nothing is padded and no mask is needed: padding changes which positions a kernel handles in full
vector registers and which in the remainder, and so the last bits. Pooling adds the rows of one text alone, in order.
`self_test` checks this for a back-end on this CPU; the fingerprint records the result.

Special tokens (such as [CLS] and [SEP]) count towards a text's length. As in sentence-transformers, they contribute to
the vector of the whole text, but never to that of a span. The empty text has a vector too: that of its special tokens.

Retrieval models put different prompts before questions and documents. Every text in the index counts as a document: a
passage, a sentence, a title, a name or a summary. A prompt's tokens belong to the text that the model reads and never
to a span; `max_tokens` is the model's limit less the document prompt, so that passages are cut to fit.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from indexmill.errors import ConfigurationError
from indexmill.extras import not_installed
from indexmill.models.pooling import mean, unit_rows
from indexmill.models.progress import Items, report_progress

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

Spans = Sequence[Sequence[tuple[int, int]]]
"""For each text, the (start, end) character offsets of the spans in it; the end is exclusive."""


@dataclasses.dataclass(frozen=True)
class EncoderFingerprint:
    """All inputs that determine an encoder's output; the keys of parts include a hash of them."""

    model: str
    weights: str  # SHA-256 of the published weights
    tokenizer: str  # SHA-256 of tokenizer.json
    graph: str  # SHA-256 of the converted graph and its constants; empty for a model that is not converted
    backend: str
    precision: str  # the effective one: "f32" or "bf16"; with "int8+" before it for a quantised graph
    instructions: str  # the CPU features that the back-end uses
    pooling: str
    max_tokens: int
    dimension: int
    libraries: Mapping[str, str]  # versions
    reproducible: bool  # a text has the same bits in any batch
    # Added later; records omit these fields if they have their defaults.
    files: str = ""  # SHA-256 over all files of a model that runs unconverted
    query_prompt: str = ""
    document_prompt: str = ""
    whole_dimension: int = 0  # the model's own dimension, if vectors are truncated
    calibration: str = ""  # SHA-256 of the calibration texts of a quantised graph
    device: str = ""  # torch's device; empty for other back-ends, which run on the CPU
    asked_dimension: int = 0  # the dimension requested from an endpoint; 0 for the model's own

    def as_dict(self) -> dict[str, Any]:
        """Return the fingerprint as values for canonical JSON, without fields that have their default."""
        values = {**dataclasses.asdict(self), "libraries": dict(self.libraries)}
        return {
            field.name: values[field.name] for field in dataclasses.fields(self) if values[field.name] != field.default
        }


class Prompts(NamedTuple):
    """The prompts to put before a text: `query` before a question, `document` before any other text."""

    query: str = ""
    document: str = ""


NO_PROMPTS = Prompts()


@dataclasses.dataclass(frozen=True)
class _Tokens:
    """One text's tokens as the encoder reads them: truncated, with the prompt and special tokens."""

    ids: NDArray[Any]  # a tokenizer's ids, or the words themselves
    offsets: NDArray[np.int32]  # (n, 2): offsets of the text's own n tokens, in the text without the prompt
    first: int  # the number of tokens before the text's own


@dataclasses.dataclass(frozen=True)
class Pass:
    """Texts with the same token count that the encoder reads at once.

    texts: the texts without their prompt. ids: the token ids ``(texts, tokens)``, with the prompt. query: True for
    questions. states: True if hidden states are needed too.
    """

    texts: Sequence[str]
    ids: NDArray[Any]
    query: bool
    states: bool


class Encoded(NamedTuple):
    """The output of a pass.

    vectors: the pooled vectors, ``(texts, d) float32``, neither truncated nor normalised. states: the hidden states,
    ``(texts, tokens, hidden) float32``.
    """

    vectors: NDArray[np.float32]
    states: NDArray[np.float32] | None


class Embedder(ABC):
    """Encodes texts as unit vectors. Every method may be called from several threads."""

    dimension: int

    max_tokens: int
    """The maximum tokens of a document, with special tokens but without its prompt; the rest is cut off."""

    special_tokens: int
    """The number of special tokens of every text."""

    pools_spans = False
    """True if a span's vector is pooled from the hidden states of its text; False if each span has its own pass."""

    @property
    @abstractmethod
    def fingerprint(self) -> EncoderFingerprint:
        """The inputs that determine the vectors. The first access may run a self-test (well under a second)."""

    @abstractmethod
    def token_offsets(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return the (n, 2) character offsets of each text's tokens: untruncated, no special tokens, no prompt."""

    @abstractmethod
    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Count the tokens of each text: untruncated, with special tokens, without the prompt."""

    @abstractmethod
    def _encode(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        """Encode texts after their prompt as unit vectors, (n, dimension) float32."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode documents in order as unit vectors, (n, dimension) float32."""
        return self._encode(texts, query=False)

    def encode_queries(self, questions: Sequence[str]) -> NDArray[np.float32]:
        """Encode questions in order as unit vectors, (n, dimension) float32."""
        return self._encode(questions, query=True)

    def encode_with_spans(self, texts: Sequence[str], spans: Spans) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Encode documents, and their spans as separate texts; the second array has a row per span, in order."""
        if len(texts) != len(spans):
            raise ValueError(f"{len(texts)} texts, but spans for {len(spans)}")
        alone = [text[left:right] for text, of_text in zip(texts, spans, strict=True) for left, right in of_text]
        return self.encode(texts), self.encode(alone)


class PassEmbedder(Embedder):
    """An embedder that runs on this machine: texts of equal token count share a pass, but are pooled separately."""

    pools_spans = True

    tokens_per_pass: int = 1024  # the fastest in measurements with 1 and 2 threads, and fits into a core's cache

    questions_alone = False
    """True if each question has a pass of its own."""

    def _texts_per_pass(self, length: int) -> int:
        return max(1, self.tokens_per_pass // length)

    def _rest(self, texts: int) -> Iterable[int]:
        """Return the sizes of the passes for the last ``texts`` texts of a length, which do not fill a whole pass."""
        return [texts] if texts else []

    @abstractmethod
    def _tokenise(self, texts: Sequence[str], *, query: bool, offsets: bool) -> Iterator[_Tokens]:
        """Tokenise each text after its prompt; offsets are empty unless requested."""

    @abstractmethod
    def _encoded(self, passes: Iterable[Pass]) -> Iterator[Encoded]:
        """Yield the output of each pass, in order."""

    def _of_spans(self, means: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the vectors of spans, given the means of their hidden states ``(spans, hidden)``."""
        return means

    def _encode(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        pooled = np.zeros((len(texts), self.dimension), np.float32)
        for rows, encoded, _ in self._passes(texts, query=query, spans=False):
            pooled[rows] = encoded.vectors[:, : self.dimension]
        return unit_rows(pooled)

    def encode_with_spans(self, texts: Sequence[str], spans: Spans) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Encode documents, and spans in them.

        A span's vector is the normalised mean of the last hidden states of the tokens that overlap it, in the pass of
        its text. A span without a token (blank, or cut off) is encoded as a text of its own; so is every span if the
        encoder does not pool spans. The second array has a row per span, in the order of the texts and their spans.
        """
        if len(texts) != len(spans) or not self.pools_spans:
            return super().encode_with_spans(texts, spans)
        starts = np.cumsum([0, *map(len, spans)])
        pooled = np.zeros((len(texts), self.dimension), np.float32)
        of_spans = np.zeros((int(starts[-1]), self.dimension), np.float32)
        pooled_spans = np.zeros(int(starts[-1]), np.bool_)
        for rows, encoded, tokens in self._passes(texts, query=False, spans=True):
            pooled[rows] = encoded.vectors[:, : self.dimension]
            assert encoded.states is not None  # noqa: S101 - requested
            pooled_rows: list[int] = []
            means = []
            for row, states, of_text in zip(rows, encoded.states, tokens, strict=True):
                bounds = np.asarray(spans[row], np.int64).reshape(-1, 2)
                # Offsets never go back, so the tokens that overlap a span are a range of them.
                begin = np.searchsorted(of_text.offsets[:, 1], bounds[:, 0], side="right") + of_text.first
                end = np.searchsorted(of_text.offsets[:, 0], bounds[:, 1], side="left") + of_text.first
                for at, (low, high) in enumerate(zip(begin.tolist(), end.tolist(), strict=True), int(starts[row])):
                    if low < high:
                        pooled_rows.append(at)
                        means.append(mean(states[low:high]))
            if pooled_rows:
                of_spans[pooled_rows] = self._of_spans(np.stack(means))[:, : self.dimension]
                pooled_spans[pooled_rows] = True
        of_spans = unit_rows(of_spans)
        alone = np.flatnonzero(~pooled_spans)
        if len(alone):
            every = [text[left:right] for text, of_text in zip(texts, spans, strict=True) for left, right in of_text]
            of_spans[alone] = self.encode([every[at] for at in alone.tolist()])
        return unit_rows(pooled), of_spans

    def _passes(
        self, texts: Sequence[str], *, query: bool, spans: bool
    ) -> Iterator[tuple[list[int], Encoded, list[_Tokens]]]:
        """Yield the rows, output and tokens of each pass. A text without tokens is in no pass."""
        texts = list(map(readable, texts))
        tokens = list(self._tokenise(texts, query=query, offsets=spans))
        by_length: dict[int, list[int]] = {}
        for row, of_text in enumerate(tokens):
            by_length.setdefault(len(of_text.ids), []).append(row)
        by_length.pop(0, None)
        batches = []
        for length, rows in sorted(by_length.items()):
            size = 1 if query and self.questions_alone else self._texts_per_pass(length)
            remaining = iter(rows)
            for count in [size] * (len(rows) // size) + list(self._rest(len(rows) % size)):
                batches.append(list(itertools.islice(remaining, count)))
        every = self._encoded(
            Pass([texts[row] for row in batch], np.stack([tokens[row].ids for row in batch]), query, spans)
            for batch in batches
        )
        done, total = 0, sum(length * len(rows) for length, rows in by_length.items())
        encoded = 0
        for batch, out in zip(batches, every, strict=True):
            yield batch, out, [tokens[row] for row in batch]
            done += sum(len(tokens[row].ids) for row in batch)
            encoded += len(batch)
            report_progress(done, total, Items(encoded, len(tokens), "text"))


BYTES_OF_MANY_LANGUAGES = 100_000
"""The tokens from which on a byte-level vocabulary is one of many languages."""


class Tokeniser:
    """A tokeniser that needs only a tokenizer.json; splitting needs no other part of an encoder. Thread-safe."""

    def __init__(self, tokenizer: bytes, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self._whole = _tokenizer(tokenizer)
        self.special_tokens = int(self._whole.num_special_tokens_to_add(False))

    def token_offsets(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return offsets; see ``Embedder.token_offsets``. A huge text is tokenised in parts that end between words."""
        parts = [list(_parts(text)) for text in texts]
        flat = [part for of_text in parts for _, part in of_text]
        encoded = (
            _pairs(encoding.offsets)
            for chunk in _chunks(flat)
            for encoding in self._whole.encode_batch(chunk, add_special_tokens=False)
        )
        moved = [[next(encoded) + np.int32(start) for start, _ in of_text] for of_text in parts]
        return [of_text[0] if len(of_text) == 1 else np.concatenate(of_text) for of_text in moved]

    def pieces(self, words: Sequence[str]) -> NDArray[np.int64]:
        """Return how many tokens each word has, and how many of them stand for unknown characters: ``(n, 2)``.

        A token for nothing but the space before a word does not count.
        """
        encoded = (
            encoding.ids
            for chunk in _chunks(words)
            for encoding in self._whole.encode_batch_fast(chunk, add_special_tokens=False)
        )
        space, unknown = self._special_ids
        rows = [(len(ids) - ids.count(space), ids.count(unknown)) for ids in encoded]
        return np.array(rows, np.int64).reshape(-1, 2)

    @cached_property
    def shows_languages(self) -> bool:
        """False if the model may read a language although the tokenizer cuts its words into bytes.

        That is so for byte-level vocabularies of many languages, such as Qwen's of 151,000 tokens: it cuts Hindi words
        at every joint, though the model has learnt Hindi. Those of one language have 30,000 to 50,000 tokens.
        """
        whole = json.loads(self._whole.to_str())["pre_tokenizer"] or {}
        steps = [step["type"] for step in whole.get("pretokenizers", [whole]) if step]
        return "ByteLevel" not in steps or self._whole.get_vocab_size() < BYTES_OF_MANY_LANGUAGES

    @cached_property
    def _special_ids(self) -> tuple[int, int]:
        """The ids of the tokens for a space (SentencePiece's) and for unknown characters; -1 if there is none."""
        model = json.loads(self._whole.to_str())["model"]
        token = model.get("unk_token")
        unknown = model.get("unk_id") if token is None else self._whole.token_to_id(token)
        space = self._whole.token_to_id("\u2581")
        return -1 if space is None else space, -1 if unknown is None else unknown

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return each text's token ids with special tokens; a truncated text keeps its last token."""
        encoded = (encoding.ids for chunk in _chunks(texts) for encoding in self._whole.encode_batch_fast(chunk))
        most = self.max_tokens
        return [ids if len(ids) <= most else [*ids[: most - 1], ids[-1]] for ids in encoded]

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Count the tokens of each text: untruncated, with special tokens."""
        counts = [len(encoding) for chunk in _chunks(texts) for encoding in self._whole.encode_batch_fast(chunk)]
        return np.array(counts, np.int64)


def cut_dimension(dimension: int | None, whole: int) -> int:
    """Return the dimension of truncated vectors; raises ConfigurationError if it exceeds the model's (``whole``)."""
    if dimension is not None and dimension > whole:
        raise ConfigurationError(
            f"embed.dimensions is {dimension}, but the model's dimension is {whole}; set at most that"
        )
    return dimension or whole


def tokens_left(tokenizer: bytes, max_tokens: int, prompt: str, setting: str = "document_prompt") -> int:
    """Return the maximum number of tokens, with special tokens, of a text that the model reads after a prompt.

    tokenizer: a tokenizer.json. max_tokens: the model's limit. setting: the name of the prompt's setting, for messages.
    Raises ConfigurationError if the prompt takes more than half of the limit.
    """
    if not prompt:
        return max_tokens
    prompt_tokens = len(_tokenizer(tokenizer).encode(prompt, add_special_tokens=False))
    if 2 * prompt_tokens > max_tokens:
        raise ConfigurationError(
            f"the prompt {prompt!r:.80} has {prompt_tokens} tokens, but the model reads {max_tokens}; expected at most "
            f"half of that: set embed.{setting}"
        )
    return max_tokens - prompt_tokens


class TokenEncoder(Tokeniser, PassEmbedder):
    """The shared part of the torch and OpenVINO back-ends. max_tokens: the model's limit, which includes the prompt."""

    def __init__(self, tokenizer: bytes, max_tokens: int, prompts: Prompts) -> None:
        super().__init__(tokenizer, tokens_left(tokenizer, max_tokens, prompts.document))
        self.prompts = prompts
        self._cut = _tokenizer(tokenizer)
        self._cut.enable_truncation(max_tokens)
        self.reproducible: bool | None = None
        """The result of this encoder's last self-test on this machine; None to run the self-test."""

    def _is_reproducible(self) -> bool:
        """Return True if a text's vector has the same bits in any batch; run the self-test if it has not run yet."""
        if self.reproducible is None:
            self.reproducible = self_test(self)
        return self.reproducible

    def _prompt(self, query: bool) -> str:
        return self.prompts.query if query else self.prompts.document

    def _prompt_tokens(self, query: bool) -> int:
        """Count the tokens up to the end of the prompt, with special tokens; 0 without a prompt."""
        prompt = self._prompt(query)
        if not prompt:
            return 0
        special = self._whole.encode(prompt).special_tokens_mask
        return len(special) - sum(special[-1:])

    def _tokenise(self, texts: Sequence[str], *, query: bool, offsets: bool) -> Iterator[_Tokens]:
        nothing = np.empty((0, 2), np.int32)
        prompt = self._prompt(query)
        for chunk in _chunks([prompt + text for text in texts] if prompt else texts):
            if not offsets:
                for encoding in self._cut.encode_batch_fast(chunk):
                    yield _Tokens(np.array(encoding.ids, np.int64), nothing, 0)
                continue
            for encoding in self._cut.encode_batch(chunk):
                bounds = _pairs(encoding.offsets)
                is_text = np.array(encoding.special_tokens_mask) == 0
                if prompt:  # a token that ends in the text belongs to it, wherever it begins
                    is_text &= bounds[:, 1] > len(prompt)
                of_text = np.flatnonzero(is_text)
                first, last = (int(of_text[0]), int(of_text[-1]) + 1) if len(of_text) else (0, 0)
                yield _Tokens(
                    np.array(encoding.ids, np.int64), np.maximum(bounds[first:last] - np.int32(len(prompt)), 0), first
                )


_CHUNK = 2048
_CHUNK_CHARACTERS = 1 << 20
"""The maximum texts and characters to tokenise at once: until it is an array, an encoding takes 200 bytes/character."""


def _tokenizer(data: bytes) -> Tokenizer:
    # The library's thread pool would compete with other workers for cores, and warns when a process forks.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from tokenizers import Tokenizer  # an optional library
    except ImportError as error:
        raise not_installed("the encoder", "tokenizers", error) from error

    tokenizer = Tokenizer.from_str(data.decode("utf-8"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _chunks(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the texts in chunks of bounded size, and make each text `readable`."""
    at = 0
    while at < len(texts):
        stop, room = at, _CHUNK_CHARACTERS
        while stop < len(texts) and stop - at < _CHUNK and (stop == at or len(texts[stop]) <= room):
            room -= len(texts[stop])
            stop += 1
        yield list(map(readable, texts[at:stop]))
        at = stop


def readable(text: str) -> str:
    """Replace each lone surrogate, which UTF-8 cannot encode, with a question mark."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """Yield the offset and the text of each part of a text: one part, unless the text is huge."""
    start = 0
    while len(text) - start > _CHUNK_CHARACTERS:
        limit = start + _CHUNK_CHARACTERS
        space = max(text.rfind(" ", start + 1, limit), text.rfind("\n", start + 1, limit))
        stop = space if space > start else limit
        yield start, text[start:stop]
        start = stop
    yield start, text[start:] if start else text


def _pairs(offsets: list[tuple[int, int]]) -> NDArray[np.int32]:
    return np.fromiter(itertools.chain.from_iterable(offsets), np.int32, 2 * len(offsets)).reshape(-1, 2)


class HashEmbedder(PassEmbedder):
    """A deterministic double: bags of hashed words and character trigrams, so that similar texts have similar vectors.

    It needs only NumPy. Every vector includes a small hash of the surrounding text, so that a span's vector differs
    between passages, as with a model. All sums add multiples of 1/256, so they are exact and the same on any machine.
    """

    dimension = 64
    special_tokens = 2  # as most models have
    _PATTERN = re.compile(r"\w{1,16}|[^\w\s]")

    def __init__(self, max_tokens: int = 256) -> None:
        self.max_tokens = max_tokens

    @cached_property
    def fingerprint(self) -> EncoderFingerprint:
        return EncoderFingerprint(
            model="hash-1",
            weights="",
            tokenizer="",
            graph="",
            backend="hash",
            precision="f32",
            instructions="",
            pooling="mean",
            max_tokens=self.max_tokens,
            dimension=self.dimension,
            libraries={},
            reproducible=True,
        )

    def token_offsets(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        return [
            np.array([match.span() for match in self._PATTERN.finditer(text)], np.int32).reshape(-1, 2)
            for text in texts
        ]

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        return np.array([len(self._PATTERN.findall(text)) + 2 for text in texts], np.int64)

    def _tokenise(self, texts: Sequence[str], *, query: bool, offsets: bool) -> Iterator[_Tokens]:
        for text in texts:
            words = list(itertools.islice(self._PATTERN.finditer(text), max(0, self.max_tokens - 2)))
            bounds = np.array([word.span() for word in words], np.int32).reshape(-1, 2)
            yield _Tokens(np.array(["", *(word.group() for word in words), ""]), bounds, 1)

    def _encoded(self, passes: Iterable[Pass]) -> Iterator[Encoded]:
        for batch in passes:
            hidden = self._hidden(batch.ids)
            yield Encoded(np.stack(list(map(mean, hidden))), hidden)

    def _hidden(self, ids: NDArray[Any]) -> NDArray[np.float32]:
        texts = ids.tolist()
        states = np.array([[_features(word) for word in words] for words in texts], np.float32)
        around = _signs(["\0".join(words) for words in texts])
        hidden: NDArray[np.float32] = states + around[:, None, :] / np.float32(64)
        return hidden


@lru_cache(maxsize=1 << 16)
def _features(word: str) -> NDArray[np.float32]:
    """Hash a word and its trigrams; a special token is a constant that keeps every sum from being zero."""
    if not word:
        return np.full(HashEmbedder.dimension, 1 / 256, np.float32)
    framed = f"^{word.lower()}$"
    features = [framed, framed, *(framed[at : at + 3] for at in range(len(framed) - 2))]
    vector: NDArray[np.float32] = (_signs(features) * _places(features)).sum(axis=0)
    return vector


def _signs(texts: Sequence[str]) -> NDArray[np.float32]:
    """Hash each text to 64 signs, each -1 or 1."""
    return _bits(texts, 8).astype(np.float32) * 2 - 1


def _places(features: Sequence[str]) -> NDArray[np.float32]:
    """Hash each feature to the mask of dimensions that it uses, about an eighth of all."""
    thirds = _bits(features, 24, b"places").reshape(len(features), 3, -1)
    chosen: NDArray[np.uint8] = np.bitwise_and.reduce(thirds, axis=1)
    return chosen.astype(np.float32)


def _bits(texts: Sequence[str], size: int, person: bytes = b"") -> NDArray[np.uint8]:
    """Hash each text to a row of bits. size: in bytes."""
    encoded = (text.encode("utf-8", "surrogatepass") for text in texts)
    digests = b"".join(hashlib.blake2b(one, digest_size=size, person=person).digest() for one in encoded)
    return np.unpackbits(np.frombuffer(digests, np.uint8).reshape(len(texts), size), axis=1)


_SAMPLE = (
    "The quick brown fox jumps over the lazy dog.",
    "Ermengarde of Tours (c. 804 - 20 March 851) was the wife of Lothair I, and the bridge she paid for still stands.",
    "Returns zero.",
)


def self_test(embedder: Embedder) -> bool:
    """Return True if a text's vector has the same bits in any batch: alone, among others, in another order, with spans.

    It tests lengths from a few tokens to the maximum, and passes of one row and of many; takes well under a second.
    """
    long = " ".join(_SAMPLE * 8)
    texts = [*_SAMPLE, "", long, *(" ".join(["bridge"] * n) for n in (3, 15, 16, 17, 40)), *(_SAMPLE[1],) * 9]
    spans = [[(0, len(text) // 2), (len(text) // 2, len(text))] for text in texts]
    together, of_spans = embedder.encode_with_spans(texts, spans)
    if not np.array_equal(together[::-1], embedder.encode(texts[::-1])):
        return False
    for row in range(10):
        alone, alone_spans = embedder.encode_with_spans(texts[row : row + 1], spans[row : row + 1])
        if not np.array_equal(alone[0], together[row]):
            return False
        if not np.array_equal(alone_spans, of_spans[2 * row : 2 * row + 2]):
            return False
    return bool(np.isfinite(together).all())
