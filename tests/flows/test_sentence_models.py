"""Whole builds with models of every make: built, published with the model, and asked through the reader."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexmill
from indexmill import ModelUnavailable, Snapshot
from indexmill.errors import ConfigurationError, CorruptBlob
from indexmill.retrieve.directions import unit_vectors
from indexmill.store.layout import blob_path
from tasks.core import convert
from tests.flows.children import NO_FAMILIES, build, settings
from tests.sentence_models import needs_sentence_transformers, saved

pytestmark = needs_sentence_transformers

TEXTS = {
    "bridge": "The bridge over the river was built by Ermengarde of Tours. It stands still, they say.",
    "mill": "A mill stood by the river until 1851. Why it burnt nobody could say.",
    "tours": "Tours lies on a river. It was the seat of the counts, and was built over in 851.",
    "why": "Why not? they say.",
}
QUESTIONS = ["who built the bridge over the river?", "why did the mill burn"]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """On a busy machine, torch's threads wait for each other at every small product."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rows = [json.dumps({"id": name, "text": text}) + "\n" for name, text in TEXTS.items()]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(rows), encoding="utf-8")
    return path


def chosen(store: Path, corpus: Path, model: Path, **embed: Any) -> dict[str, Any]:
    more = {"model": str(model), "precision": "f32", **embed}
    return settings(store, corpus, embed=more, split={"tokens": 64}, families=NO_FAMILIES)


def sentences(snapshot: Snapshot) -> list[str]:
    """The sentences of the index, in the order of their vectors."""
    texts = dict(
        zip(*(snapshot.table("passages").column(name).to_pylist() for name in ("passage_id", "text")), strict=True)
    )
    rows = snapshot.table("sentences").to_pylist()
    return [texts[row["passage_id"]][row["start"] : row["end"]] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "backend"), [("cls", "openvino"), ("mean", "openvino"), ("mean", "torch"), ("last", "torch")]
)
def test_an_index_is_built_and_asked_with_the_model_s_own_prompts_on_both_sides(
    tmp_path: Path, corpus: Path, make: str, backend: str
) -> None:
    from sentence_transformers import SentenceTransformer

    model = saved(make, tmp_path / "models")
    theirs = SentenceTransformer(str(model), device="cpu", local_files_only=True)
    asked = tmp_path / "questions.jsonl"
    asked.write_text(json.dumps({"id": "q", "question": QUESTIONS[0], "gold_ids": ["bridge"]}) + "\n")
    plan = chosen(tmp_path / "store", corpus, model, backend=backend)
    plan["gates"] |= {"questions": str(asked), "methods": "dense"}  # the build asks, too
    outcome = build(plan)
    assert outcome.quality is not None
    model.rename(tmp_path / "moved")  # the snapshot carries all that a reader needs
    with indexmill.open(tmp_path / "store") as snapshot:
        made_by: dict[str, Any] = dict(snapshot.manifest.models["encoder"])  # type: ignore[call-overload]
        assert snapshot.manifest.minimum_reader_version == 5
        assert made_by["backend"] == backend
        assert made_by["query_prompt"] == theirs.prompts["query"]
        assert made_by.get("document_prompt", "") == theirs.prompts["document"]
        passages = snapshot.table("passages").column("text").to_pylist()
        (vectors,) = snapshot.vectors("vectors", "passages")
        expected = theirs.encode_document(passages, normalize_embeddings=True)
        assert np.allclose(vectors, expected, atol=1e-5)
        (of_sentences,) = map(unit_vectors, snapshot.vectors("vectors", "sentences"))
        if make != "mean":
            apart = theirs.encode_document(sentences(snapshot), normalize_embeddings=True)
            assert (np.vecdot(of_sentences, apart) > 0.9999).all()
        asking = theirs.encode_query(QUESTIONS, normalize_embeddings=True)
        assert np.allclose(snapshot.encode(QUESTIONS), asking, atol=1e-5)
        assert np.allclose(snapshot.encode_texts(passages), expected, atol=1e-5)
        for question, scores in zip(QUESTIONS, asking @ expected.T, strict=True):
            hits = snapshot.retrieve(question, method="dense", k=3)
            assert [hit.text for hit in hits] == [passages[row] for row in np.argsort(-scores)[:3]]
    again = build({**plan, "embed": {**plan["embed"], "model": str(tmp_path / "moved")}})
    assert again.vectors_made == 0


@pytest.mark.slow
def test_a_prompt_of_documents_makes_vectors_anew_and_one_of_questions_makes_none(tmp_path: Path, corpus: Path) -> None:
    model = saved("mean", tmp_path / "models")
    store = tmp_path / "store"
    first = build(chosen(store, corpus, model))
    assert first.vectors_made > 0
    other = build(chosen(store, corpus, model, query_prompt="ask: "))
    assert other.published
    assert other.vectors_made == 0
    with indexmill.open(store) as snapshot:
        questions = snapshot.encode(QUESTIONS)
        (before,) = snapshot.vectors("vectors", "passages")
    third = build(chosen(store, corpus, model, query_prompt="", document_prompt=""))
    assert third.vectors_made == first.vectors_made
    with indexmill.open(store) as snapshot:
        assert not np.allclose(snapshot.encode(QUESTIONS), questions, atol=1e-3)
        assert np.array_equal(snapshot.encode(QUESTIONS), snapshot.encode_texts(QUESTIONS))
        (after,) = snapshot.vectors("vectors", "passages")
        assert not np.allclose(before, after, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "backend"), [("cls", "openvino"), ("last", "torch")])
def test_vectors_are_cut_on_both_sides(tmp_path: Path, corpus: Path, make: str, backend: str) -> None:
    from sentence_transformers import SentenceTransformer

    model = saved(make, tmp_path / "models")
    build(chosen(tmp_path / "store", corpus, model, backend=backend, dimensions=16))
    theirs = SentenceTransformer(str(model), device="cpu", local_files_only=True)
    with indexmill.open(tmp_path / "store") as snapshot:
        expected = theirs.encode_query(QUESTIONS, normalize_embeddings=True, truncate_dim=16)
        assert snapshot.dimensions == 16
        assert np.allclose(snapshot.encode(QUESTIONS), expected, atol=1e-5)
        assert snapshot.retrieve(QUESTIONS[0], k=1)
    with pytest.raises(ConfigurationError, match=r"embed\.dimensions is 999"):
        build(chosen(tmp_path / "store", corpus, model, backend=backend, dimensions=999))


@pytest.mark.slow
def test_a_model_that_openvino_does_not_run_is_refused_before_anything_is_built(tmp_path: Path, corpus: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"set embed\.backend to torch"):
        build(chosen(tmp_path / "store", corpus, saved("last", tmp_path / "models")))


def test_a_carried_model_that_is_damaged_or_would_run_code_is_corrupt(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from indexmill.models import sentence_model

    store = tmp_path / "store"
    build(chosen(store, corpus, saved("last", tmp_path / "models"), backend="torch"))
    with indexmill.open(store) as snapshot:
        monkeypatch.setattr(sentence_model, "_OWN_MODULE", sentence_model.re.compile("x"))
        with pytest.raises(CorruptBlob, match="models with their own code"):
            snapshot.encode(QUESTIONS)
        monkeypatch.undo()
        weights = snapshot.artifact("encoder/2_Dense/model.safetensors").digest
    path = store / blob_path(weights)
    path.unlink()
    path.write_bytes(b"no weights")
    with indexmill.open(store) as snapshot, pytest.raises((CorruptBlob, ModelUnavailable)):
        snapshot.encode(QUESTIONS)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("nncf") is None, reason="needs nncf")
def test_an_index_of_a_quantised_encoder_is_asked_without_nncf(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved("cls", tmp_path / "models")
    store = tmp_path / "store"
    plain = build(chosen(store, corpus, model))
    monkeypatch.setattr(convert, "calibration_texts", lambda: [*TEXTS.values(), *QUESTIONS])
    outcome = build(chosen(store, corpus, model, precision="int8"))
    assert outcome.vectors_made == plain.vectors_made  # another model's vectors are of no use
    monkeypatch.setitem(sys.modules, "nncf", None)
    with indexmill.open(store) as snapshot:
        made_by: dict[str, Any] = dict(snapshot.manifest.models["encoder"])  # type: ignore[call-overload]
        assert made_by["precision"] in ("int8+f32", "int8+bf16")
        assert len(made_by["calibration"]) == 64
        (vectors,) = snapshot.vectors("vectors", "passages")
        passages = snapshot.table("passages").column("text").to_pylist()
        assert np.array_equal(snapshot.encode_texts(passages), vectors)
        with indexmill.open(store, version=1) as before:
            cosines = (snapshot.encode(QUESTIONS) * before.encode(QUESTIONS)).sum(axis=1)
        assert 0.95 < cosines.min() < 0.999999
