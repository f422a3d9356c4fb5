"""Models of every make: what their configuration says, and vectors that are sentence-transformers' own."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexmill.errors import ConfigurationError, ModelUnavailable
from indexmill.models.embedder import NO_PROMPTS, Prompts, TokenEncoder, Tokeniser, tokens_left
from indexmill.models.openvino_encoder import OpenVINOEmbedder
from indexmill.models.sentence_model import ModelFiles, find_model, read_model, tokenizer_json
from indexmill.models.torch_encoder import TorchEmbedder
from schemas.config import EmbedSettings
from tasks.core.convert import convert
from tasks.core.encoder import choose_encoder
from tests.encoders import texts
from tests.sentence_models import MAKES, TOKENS, needs_sentence_transformers, saved

pytestmark = needs_sentence_transformers

DOCUMENTS = [*texts(24, seed=11), "x", "", "Why (not)? It stands."]
QUESTIONS = ["who built the bridge over the river", "why", "ermengarde of tours in 851"]
ON_OPENVINO = ("cls", "mean", "instructor")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """On a busy machine, torch's threads wait for each other at every small product."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {make: saved(make, tmp_path_factory.mktemp("model")) for make in (*MAKES, "instructor")}


@pytest.fixture(scope="module")
def converted(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files of an encoder, for the models that OpenVINO runs."""
    folders = {}
    for make in ON_OPENVINO:
        folders[make] = tmp_path_factory.mktemp("encoder")
        for name, data in convert(models[make]).items():
            (folders[make] / name).write_bytes(data)
    return folders


@pytest.fixture
def copy(models: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a model, to be changed."""
    return lambda make: Path(shutil.copytree(models[make], tmp_path / make))


def own(path: Path) -> Any:
    """The model as sentence-transformers opens it."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(path), device="cpu", local_files_only=True)


def change(path: Path, **more: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


def opened(backend: str, make: str, models: dict[str, Path], converted: dict[str, Path], **more: Any) -> TokenEncoder:
    prompts = read_model(find_model(models[make])).prompts
    if backend == "torch":
        return TorchEmbedder.open(models[make], prompts=prompts, **more)
    return OpenVINOEmbedder.open(converted[make], precision="f32", prompts=prompts, **more)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "make"),
    [*(("torch", make) for make in (*MAKES, "instructor")), *(("openvino", make) for make in ON_OPENVINO)],
)
def test_vectors_and_what_is_found_with_them_are_those_of_sentence_transformers(
    backend: str, make: str, models: dict[str, Path], converted: dict[str, Path]
) -> None:
    theirs = own(models[make])
    encoder = opened(backend, make, models, converted)
    documents, questions = encoder.encode(DOCUMENTS), encoder.encode_queries(QUESTIONS)
    expected = theirs.encode_document(DOCUMENTS, normalize_embeddings=True)
    asked = theirs.encode_query(QUESTIONS, normalize_embeddings=True)
    assert np.allclose(documents, expected, atol=1e-5)
    assert np.allclose(questions, asked, atol=1e-5)
    assert not np.allclose(questions, theirs.encode(QUESTIONS, prompt="", normalize_embeddings=True), atol=1e-3)
    found, scores = np.argsort(-questions @ documents.T)[:, :5], asked @ expected.T
    assert np.allclose(np.take_along_axis(scores, found, 1), -np.sort(-scores)[:, :5], atol=1e-5)  # near ties aside
    cut = opened(backend, make, models, converted, dimension=10)
    expected = theirs.encode_document(DOCUMENTS, normalize_embeddings=True, truncate_dim=10)
    assert cut.dimension == 10
    assert np.allclose(cut.encode(DOCUMENTS), expected, atol=1e-5)
    assert cut.fingerprint.whole_dimension == encoder.dimension


@pytest.mark.parametrize(("backend", "make"), [("torch", "mean"), ("openvino", "mean"), ("torch", "instructor")])
def test_sentences_are_pooled_from_the_tokens_of_a_passage_and_not_of_its_prompt(
    backend: str, make: str, models: dict[str, Path], converted: dict[str, Path]
) -> None:
    text = "the bridge was built by Ermengarde. It stands still, they say"
    spans = [(0, 35), (36, len(text)), (0, len(text))]
    vectors, of_spans = opened(backend, make, models, converted).encode_with_spans([text], [spans])
    theirs = own(models[make])
    (states,) = theirs.encode_document([text], output_value="token_embeddings")
    prompt = len(Tokeniser(tokenizer_json(find_model(models[make])), TOKENS).token_offsets(["passage: "])[0])
    first = 1 + prompt
    (offsets,) = Tokeniser(tokenizer_json(find_model(models[make])), TOKENS).token_offsets([text])
    for span, found in zip(spans, of_spans, strict=True):
        of_span = [at for at, (start, end) in enumerate(offsets.tolist()) if start < span[1] and end > span[0]]
        expected = states[[first + at for at in of_span]].float().numpy().mean(axis=0)
        assert np.allclose(found, expected / np.linalg.norm(expected), atol=1e-5)
    assert np.allclose(vectors[0], theirs.encode_document([text], normalize_embeddings=True)[0], atol=1e-5)


@pytest.mark.parametrize(("backend", "make"), [("torch", "cls"), ("openvino", "cls"), ("torch", "last")])
def test_where_the_pooling_is_not_the_mean_sentences_have_passes_of_their_own(
    backend: str, make: str, models: dict[str, Path], converted: dict[str, Path]
) -> None:
    encoder = opened(backend, make, models, converted)
    assert not encoder.pools_spans
    text = "the bridge was built. It stands"
    _, of_spans = encoder.encode_with_spans([text, "x"], [[(0, 21), (22, 31)], []])
    assert np.array_equal(of_spans, encoder.encode([text[:21], text[22:]]))


def test_a_sentence_goes_through_the_layers_behind_the_mean(models: dict[str, Path], tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling

    modules = [own(models["mean"])[0], Pooling(32, "mean"), Dense(32, 12)]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "dense"))
    encoder = TorchEmbedder.open(tmp_path / "dense")
    theirs = own(tmp_path / "dense")
    text = "the river stands"
    (states,) = theirs.encode([text], output_value="token_embeddings")
    mean = states[1:-1].mean(dim=0)  # without the special tokens
    expected = theirs[2]({"sentence_embedding": mean})["sentence_embedding"].detach().numpy()
    _, of_spans = encoder.encode_with_spans([text], [[(0, len(text))]])
    assert np.allclose(of_spans[0], expected / np.linalg.norm(expected), atol=1e-5)


def test_a_model_may_read_questions_in_another_way_than_documents(models: dict[str, Path], tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Router, StaticEmbedding

    documents = own(models["cls"])
    questions = StaticEmbedding(documents[0].tokenizer, embedding_dim=32)
    router = Router.for_query_document(query_modules=[questions], document_modules=[documents[0], documents[1]])
    SentenceTransformer(modules=[router, documents[2]], device="cpu").save(str(tmp_path / "router"))
    theirs = own(tmp_path / "router")
    encoder = TorchEmbedder.open(tmp_path / "router")
    assert encoder.max_tokens == TOKENS
    assert np.allclose(encoder.encode(DOCUMENTS), theirs.encode_document(DOCUMENTS), atol=1e-5)
    assert np.allclose(encoder.encode_queries(QUESTIONS), theirs.encode_query(QUESTIONS), atol=1e-5)
    change(tmp_path / "router" / "router_config.json", types={"query_0_Own": "modeling.Own"})
    with pytest.raises(ConfigurationError, match="models with their own code"):
        TorchEmbedder.open(tmp_path / "router")


def test_what_is_left_for_a_document_is_less_by_its_prompt(models: dict[str, Path]) -> None:
    files = find_model(models["mean"])
    assert read_model(files).max_tokens == TOKENS
    encoder = TorchEmbedder.open(files, prompts=Prompts(document="passage: "))
    (prompt,) = Tokeniser(tokenizer_json(files), TOKENS).token_offsets(["passage: "])
    assert encoder.max_tokens == encoder.fingerprint.max_tokens == TOKENS - len(prompt)
    assert encoder.count_tokens(["the bridge"]).tolist() == [4]  # as without the prompt
    with pytest.raises(ConfigurationError, match=r"embed\.document_prompt"):
        tokens_left(tokenizer_json(files), TOKENS, "the bridge " * 60)


@pytest.mark.slow
def test_every_file_that_shapes_vectors_is_in_the_fingerprint(copy: Callable[[str], Path]) -> None:
    folder = copy("last")
    files = ModelFiles("m", folder)
    before = files.digest
    for path in ("2_Dense/model.safetensors", "2_Dense/config.json", "1_Pooling/config.json", "config.json"):
        kept = (folder / path).read_bytes()
        (folder / path).write_bytes(kept + b" ")
        assert files.digest != before, path
        (folder / path).write_bytes(kept)
    assert files.digest == before
    assert TorchEmbedder.open(folder).fingerprint.files == before


@pytest.mark.slow
def test_a_model_given_file_by_file_is_the_model(models: dict[str, Path]) -> None:
    files = find_model(models["last"])
    one, other = TorchEmbedder.open(files), TorchEmbedder.open(files.parts, name=files.name)
    assert one.fingerprint == other.fingerprint
    assert np.array_equal(one.encode(DOCUMENTS), other.encode(DOCUMENTS))


def test_a_dimension_that_the_model_does_not_give_is_refused(models: dict[str, Path]) -> None:
    with pytest.raises(ConfigurationError, match=r"embed\.dimensions is 33, but the model's dimension is 24"):
        TorchEmbedder.open(models["last"], dimension=33)


def test_a_gpu_that_fails_is_told_as_such_and_blames_no_text(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    encoder = TorchEmbedder.open(models["cls"])

    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("tried to allocate 20 MiB")

    monkeypatch.setattr(encoder._model, "encode_document", full)
    with pytest.raises(ModelUnavailable, match=r"tried to allocate 20 MiB.*embed\.device to cpu"):
        encoder.encode(["the bridge"])
    monkeypatch.setattr("sentence_transformers.SentenceTransformer", full)
    with pytest.raises(ModelUnavailable, match="no room for cls"):
        TorchEmbedder.open(models["cls"])


def test_a_device_that_is_not_there_is_named(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelUnavailable, match=r"embed\.device is cuda"):
        TorchEmbedder.open(models["cls"], device="cuda")
    with pytest.raises(ConfigurationError, match="device is 'tpu'"):
        TorchEmbedder.open(models["cls"], device="tpu")
    assert TorchEmbedder.open(models["cls"]).fingerprint.device == "cpu"


def test_without_the_library_the_extra_that_brings_it_is_named(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ModelUnavailable, match=r"package sentence_transformers.*'indexmill\[encoders\]'"):
        TorchEmbedder.open(models["cls"])


# What the configuration says


def test_the_configuration_of_each_make_is_read(models: dict[str, Path]) -> None:
    found = {make: read_model(find_model(path)) for make, path in models.items()}
    assert [one.pooling for one in found.values()] == ["cls", "mean", "lasttoken", "mean"]
    assert [one.dimension for one in found.values()] == [32, 32, 24, 32]
    assert [one.include_prompt for one in found.values()] == [True, True, True, False]
    assert found["mean"].prompts == Prompts("query: ", "passage: ")
    assert found["cls"].prompts == Prompts("Represent this for a search: ", "")
    assert [bool(one.beyond_graph) for one in found.values()] == [False, False, True, False]


def test_older_configurations_are_read_as_the_library_reads_them(copy: Callable[[str], Path]) -> None:
    folder = copy("mean")
    pooling = folder / "1_Pooling" / "config.json"
    for switches, expected in (
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, "max+mean"),
        ({}, "mean"),
    ):
        pooling.write_text(json.dumps({"word_embedding_dimension": 32, **switches}))
        found = read_model(ModelFiles("m", folder))
        assert found.pooling == expected
        assert found.dimension == own(folder).get_embedding_dimension()


def test_joined_poolings_are_those_of_the_library(copy: Callable[[str], Path], tmp_path: Path) -> None:
    folder = copy("cls")
    modes = ["cls", "max", "mean", "mean_sqrt_len_tokens", "lasttoken"]
    change(folder / "1_Pooling" / "config.json", pooling_mode=modes)
    for name, data in convert(folder).items():
        (tmp_path / name).write_bytes(data)
    encoder = OpenVINOEmbedder.open(tmp_path, precision="f32")
    assert encoder.dimension == 5 * 32
    assert np.allclose(encoder.encode(DOCUMENTS), own(folder).encode(DOCUMENTS, prompt=""), atol=1e-5)


def test_a_prompt_for_passages_is_one_for_documents(copy: Callable[[str], Path]) -> None:
    folder = copy("mean")
    change(folder / "config_sentence_transformers.json", prompts={"query": "q: ", "passage": "p: ", "document": ""})
    assert read_model(ModelFiles("m", folder)).prompts == Prompts("q: ", "p: ")
    change(folder / "config_sentence_transformers.json", prompts=None)
    assert read_model(ModelFiles("m", folder)).prompts == NO_PROMPTS


def test_the_smallest_limit_of_tokens_counts(copy: Callable[[str], Path]) -> None:
    folder = copy("cls")
    change(folder / "sentence_bert_config.json", max_seq_length=20)
    found = read_model(ModelFiles("m", folder))
    assert found.max_tokens == 20 == own(folder).max_seq_length
    long = " ".join(["bridge"] * 200)
    expected = own(folder).encode([long], prompt="", normalize_embeddings=True)
    assert np.allclose(TorchEmbedder.open(folder).encode([long]), expected, atol=1e-5)


def test_a_limit_of_documents_alone_is_theirs(copy: Callable[[str], Path]) -> None:
    folder = copy("cls")
    change(folder / "sentence_bert_config.json", document_length=20)
    assert read_model(ModelFiles("m", folder)).max_tokens == 20


def test_a_cut_that_the_model_says_is_the_default(copy: Callable[[str], Path]) -> None:
    folder = copy("cls")
    change(folder / "config_sentence_transformers.json", truncate_dim=16)
    assert read_model(ModelFiles("m", folder)).cut == 16
    assert choose_encoder(EmbedSettings(model=str(folder))).dimension == 16
    assert choose_encoder(EmbedSettings(model=str(folder), dimensions=8)).dimension == 8
    with pytest.raises(ConfigurationError, match=r"embed\.dimensions is 32, but the model's dimension is 16"):
        choose_encoder(EmbedSettings(model=str(folder), dimensions=32))


def test_a_prompt_that_leaves_no_room_for_a_question_is_refused(models: dict[str, Path]) -> None:
    with pytest.raises(ConfigurationError, match=r"set embed\.query_prompt"):
        choose_encoder(EmbedSettings(model=str(models["cls"]), query_prompt="the bridge " * 60))


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta"])
def test_names_of_a_configuration_that_earlier_versions_gave_it_are_known(
    copy: Callable[[str], Path], kind: str
) -> None:
    folder = copy("cls")
    (folder / "sentence_bert_config.json").rename(folder / f"sentence_{kind}_config.json")
    change(folder / f"sentence_{kind}_config.json", max_seq_length=20)
    assert read_model(ModelFiles("m", folder)).max_tokens == 20 == own(folder).max_seq_length


def test_a_model_that_reads_in_lower_case_does_so_in_every_back_end(copy: Callable[[str], Path]) -> None:
    folder = copy("cls")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    change(folder / "sentence_bert_config.json", do_lower_case=True)
    assert json.loads(tokenizer_json(ModelFiles("m", folder))) == tokenizer  # it does already
    (folder / "tokenizer.json").write_text(json.dumps({**tokenizer, "normalizer": None}))
    (tokens,) = Tokeniser(tokenizer_json(ModelFiles("m", folder)), TOKENS).token_offsets(["The BRIDGE"])
    assert tokens.tolist() == [[0, 3], [4, 10]]
    change(folder / "sentence_bert_config.json", do_lower_case=False)
    assert b"Lowercase" not in tokenizer_json(ModelFiles("m", folder))


# What is refused


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("modules.json", [{"type": "custom_st.Transformer", "path": ""}], "models with their own code"),
        ("modules.json", [{"type": "os.system", "path": ""}], "models with their own code"),
        ("modules.json", [{"type": "sentence_transformers.util.misc", "path": ""}], "models with their own code"),
        ("adapter_config.json", {"base_model_name_or_path": "x"}, "adapter"),
        ("1_Pooling/adapter_config.json", {"base_model_name_or_path": "x"}, "adapter"),
    ],
)
def test_a_model_that_would_run_code_of_its_own_is_refused(
    copy: Callable[[str], Path], file: str, content: object, complaint: str
) -> None:
    folder = copy("cls")
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(ConfigurationError, match=complaint):
        TorchEmbedder.open(folder)


def test_an_older_router_to_code_of_its_own_is_refused(copy: Callable[[str], Path]) -> None:
    folder = copy("cls")
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Router", "path": "0_Router"}]')
    (folder / "0_Router").mkdir()
    (folder / "0_Router" / "config.json").write_text('{"types": {"x": "custom_st.Module"}}')
    with pytest.raises(ConfigurationError, match="models with their own code"):
        read_model(ModelFiles("m", folder))


def test_weights_in_a_pickle_are_refused_and_beside_safetensors_never_read(copy: Callable[[str], Path]) -> None:
    folder = copy("last")
    (folder / "pytorch_model.bin").write_bytes(b"never opened")
    TorchEmbedder.open(folder)
    (folder / "2_Dense" / "model.safetensors").rename(folder / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(ConfigurationError, match=r"2_Dense/pytorch_model\.bin: weights in a pickle"):
        TorchEmbedder.open(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelUnavailable, match=r"model\.safetensors: missing"):
        find_model(folder)


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("modules.json", "{", "cannot be read as JSON"),
        ("modules.json", "[]", "expected a list of modules"),
        ("modules.json", "[1]", "expected a type"),
        (
            "modules.json",
            '[{"type": "sentence_transformers.models.Pooling", "path": "../up"}]',
            "folder inside the model's",
        ),
        (
            "modules.json",
            '[{"type": "sentence_transformers.models.Pooling", "path": "/etc"}]',
            "folder inside the model's",
        ),
        ("1_Pooling/config.json", '{"pooling_mode": "mean", "embedding_dimension": "x"}', "dimension is 'x'"),
        (
            "config_sentence_transformers.json",
            '{"prompts": {"query": 3}}',
            "expected an object of prompts, each a string",
        ),
        ("sentence_bert_config.json", "[]", "expected a JSON object"),
    ],
)
def test_a_configuration_that_is_none_is_named(
    copy: Callable[[str], Path], file: str, content: str, complaint: str
) -> None:
    folder = copy("cls")
    (folder / file).write_text(content)
    with pytest.raises(ModelUnavailable, match=complaint):
        read_model(ModelFiles("m", folder))


def test_a_model_that_the_library_cannot_open_is_named(copy: Callable[[str], Path]) -> None:
    folder = copy("cls")
    change(folder / "config.json", model_type="no-such-model")
    with pytest.raises(ModelUnavailable, match="sentence-transformers cannot open this model"):
        TorchEmbedder.open(folder)
    with pytest.raises(ConfigurationError, match="transformers cannot open this model, and the model's own code"):
        convert(folder)


def test_what_openvino_does_not_run_is_told_what_does(copy: Callable[[str], Path], models: dict[str, Path]) -> None:
    with pytest.raises(ConfigurationError, match=r"Dense, Normalize; set embed\.backend to torch"):
        convert(models["last"])
    folder = copy("last")
    modules = [one for one in json.loads((folder / "modules.json").read_text()) if not one["type"].endswith("Dense")]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ConfigurationError, match=r"may have a single token.*set embed\.backend to torch"):
        convert(folder)  # a decoder, whose texts have one special token
    folder = copy("mean")
    change(folder / "1_Pooling" / "config.json", pooling_mode="weightedmean")
    with pytest.raises(ConfigurationError, match="its pooling is weightedmean"):
        convert(folder)


@pytest.mark.slow
def test_fields_of_a_fingerprint_that_came_later_are_left_out_where_nothing_is_to_say(models: dict[str, Path]) -> None:
    fingerprint = TorchEmbedder.open(models["mean"], prompts=Prompts("q", "d")).fingerprint
    later = {"files", "query_prompt", "document_prompt", "device", "whole_dimension"}
    assert later & fingerprint.as_dict().keys() == later - {"whole_dimension"}
    plain = dataclasses.replace(fingerprint, files="", query_prompt="", document_prompt="", device="")
    assert not later & plain.as_dict().keys()
