"""Batches of texts and their vectors in the ledger: what is found again, and what is not believed."""

from __future__ import annotations

import base64
import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexmill.errors import ModelUnavailable
from indexmill.models.embedder import HashEmbedder
from indexmill.store.layout import ledger_prefixes
from schemas.config import EmbedSettings
from storage import ledger, refusals
from storage.folder import FolderStore, init_folder
from storage.ledger import LedgerEntry
from tasks.llm.quota import LocalQuota
from tasks.llm.vectors import EncoderAccess, TextsRefused, batches_of, is_known, probe, vectors_of
from tests.llm_embeddings import Embeddings
from tests.llm_server import LlmServer

TEXTS = [f"Sentence {number} tells of the bridge of Vell." for number in range(100)]


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return init_folder(tmp_path / "store")


@pytest.fixture
def server() -> Iterator[LlmServer]:
    with LlmServer() as server:
        yield server


def access(server: LlmServer, **embed: Any) -> EncoderAccess:
    settings = EmbedSettings(backend="openai", model="small", base_url=server.base_url, batch_texts=16, **embed)
    return EncoderAccess(settings, "run-1", LocalQuota())


def get(store: FolderStore, given: EncoderAccess, texts: list[str] = TEXTS) -> np.ndarray:
    return vectors_of(store, given, texts, [10] * len(texts), 64, Counter())


def cut(texts: list[str], **embed: Any) -> list[tuple[str, ...]]:
    settings = EmbedSettings(backend="openai", model="small", **{"batch_texts": 16, **embed})
    return [tuple(texts[at] for at in batch) for batch in batches_of(texts, [10] * len(texts), settings, 64)]


def entries(store: FolderStore) -> list[LedgerEntry]:
    return [entry for _, _, entry in ledger.scan(store) if entry is not None]


# Batches


def test_batches_hold_every_text_once_in_order_and_within_the_limits() -> None:
    made = cut(TEXTS)
    assert [text for batch in made for text in batch] == TEXTS
    assert max(map(len, made)) <= 16
    assert max(map(len, cut(TEXTS, batch_tokens=35))) == 3
    assert cut(TEXTS, batch_texts=1) == [(text,) for text in TEXTS]
    assert cut(["long"], batch_tokens=5) == [("long",)]  # more than a request should have, and nowhere to cut it
    assert cut([]) == []


def test_a_text_more_or_less_changes_the_batches_around_it_alone() -> None:
    before = set(cut(TEXTS))
    for at in (0, 37, 99):
        assert len(set(cut([*TEXTS[:at], "Another sentence.", *TEXTS[at:]])) - before) <= 4
        assert len(set(cut([*TEXTS[:at], *TEXTS[at + 1 :]])) - before) <= 4


def test_a_batch_fits_into_a_record_of_the_ledger() -> None:
    texts = [str(number) for number in range(3000)]
    settings = EmbedSettings(backend="openai", model="small", batch_texts=2048, batch_tokens=10**9)
    for dimension in (64, 4096, 65536):
        sizes = [len(batch) * dimension * 4 * 4 / 3 for batch in batches_of(texts, [1] * 3000, settings, dimension)]
        assert max(sizes) <= ledger.LONGEST * 0.75


# The ledger


def test_what_the_ledger_has_is_not_asked_again_and_whoever_was_first_counts(
    store: FolderStore, server: LlmServer
) -> None:
    given = access(server)
    first = get(store, given)
    calls = server.embeddings.calls
    counts = Counter[str]()
    again = vectors_of(store, given, TEXTS, [10] * 100, 64, counts)
    assert np.array_equal(first, again)
    assert +counts == {"embed_ledger": 100}
    assert server.embeddings.calls == calls == len(cut(TEXTS))
    assert sum(entry.input_tokens for entry in entries(store)) == server.embeddings.tokens
    assert all(is_known(store, given, list(batch), 64) for batch in cut(TEXTS))
    assert not is_known(store, given, TEXTS[:3], 64)
    assert not is_known(store, given, list(cut(TEXTS)[0]), 32)


def test_model_and_dimensions_shape_the_key_and_the_address_does_not(store: FolderStore, server: LlmServer) -> None:
    get(store, access(server), TEXTS[:5])
    with LlmServer() as elsewhere:
        get(store, access(elsewhere), TEXTS[:5])
        assert elsewhere.embeddings.calls == 0
        other = dataclasses.replace(
            access(elsewhere), settings=EmbedSettings(backend="openai", model="large", base_url=elsewhere.base_url)
        )
        get(store, other, TEXTS[:5])
        assert elsewhere.embeddings.calls == 1


def damaged(vectors: np.ndarray) -> list[object]:
    """What may stand in a record in the place of vectors."""

    def packed(array: np.ndarray) -> str:
        return base64.b64encode(array.astype("<f4").tobytes()).decode()

    return [None, 7, "", "!?", packed(vectors[:4]), packed(vectors * 3), packed(vectors * np.nan), packed(vectors)[:-4]]


def test_a_record_that_holds_no_such_vectors_is_replaced(store: FolderStore, server: LlmServer) -> None:
    given = access(server)
    good = get(store, given, TEXTS[:5])
    (entry,) = entries(store)
    for number, value in enumerate(damaged(good), 1):
        bad = entry.model_copy(update={"value": {"vectors": value}})
        store.replace(bad.name, bad.to_bytes())
        found = get(store, given, TEXTS[:5])
        assert np.allclose(found, HashEmbedder().encode(TEXTS[:5]), atol=5e-3)
        assert server.embeddings.calls == 1 + number
        (kept,) = entries(store)
        assert kept.value["vectors"] != value


def test_no_record_names_a_text_or_an_address(store: FolderStore, server: LlmServer) -> None:
    get(store, access(server))
    held = b"".join(store.get(name) for prefix in ledger_prefixes() for name in store.list(prefix))
    assert b"bridge" not in held
    assert b"127.0.0.1" not in held


# Refused texts


def test_the_others_of_a_refused_text_are_kept_and_neither_is_sent_again(store: FolderStore) -> None:
    hurt = [*TEXTS[:40], "zorkmid", *TEXTS[40:]]
    refuses = Embeddings(refused=lambda text: 422 if text == "zorkmid" else None)
    with LlmServer(embeddings=refuses) as server:
        given = access(server)
        with pytest.raises(TextsRefused, match=r"refuses 1 of 101 texts \(rejected: 1\)") as caught:
            get(store, given, hurt)
        assert caught.value.refused == {40: "rejected"}
        assert [record.reason for _, record in refusals.scan(store) if record is not None] == ["rejected"]
        assert refuses.paid_twice() == {}
        calls = refuses.calls
        with pytest.raises(TextsRefused):
            get(store, given, hurt)
        assert refuses.calls == calls
        refuses.refused = lambda text: None
        again = dataclasses.replace(given, run_id="run-2", retry_refused=True)
        assert get(store, again, hurt).shape == (101, 64)
        assert set(refuses.texts.values()) == {1}  # only what had been refused was sent again
        assert list(refusals.scan(store)) == []


# The first question


def test_the_first_question_is_asked_once_for_each_model(store: FolderStore, server: LlmServer) -> None:
    given = access(server)
    dimension, counts = probe(store, given)
    assert (dimension, counts["embed_calls"]) == (64, 1)
    assert probe(store, given) == (64, {})
    assert probe(store, access(server, dimensions=32))[0] == 32
    assert server.embeddings.calls == 2


def test_without_the_package_openai_the_extra_is_named(
    store: FolderStore, server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with pytest.raises(ModelUnavailable, match=r"an encoder behind an endpoint needs the package openai.*\[answer\]"):
        probe(store, access(server))
