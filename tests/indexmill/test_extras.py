"""What is said where an optional package is not installed."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest

import indexmill
from indexmill import extras
from indexmill.errors import ModelUnavailable
from indexmill.extras import install, not_installed
from indexmill.models.embedder import Tokeniser
from indexmill.models.openvino_encoder import ENCODER_FILES, OpenVINOEmbedder
from indexmill.models.recogniser import SpacyRecogniser
from tests.indexmill.small_snapshot import writer_of
from tests.paths import ROOT


def test_an_extra_that_is_advised_is_one_of_the_package_and_brings_what_is_missing() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {
        extra: {re.split(r"[^\w-]", requirement)[0].replace("-", "_") for requirement in requirements}
        for extra, requirements in declared.items()
    }
    brought_by_others = {"torch": "sentence_transformers", "transformers": "sentence_transformers", "httpx2": "openai"}
    brought_by_others |= {
        "faiss": "faiss_cpu",
        "haystack": "haystack_ai",
        "llama_index": "llama_index_core",
        "openlineage": "openlineage_python",
    }
    for package, extra in extras._EXTRAS.items():
        assert brought_by_others.get(package, package) in named[extra], package
    assert "pipeline" in declared


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("sentence_transformers.models", "pip install 'indexmill[rerank]'"),
        ("prefect", "pip install 'indexmill[pipeline]'"),
        ("yaml", "pip install pyyaml"),
    ],
)
def test_the_advice_is_the_smallest_extra(package: str, command: str) -> None:
    assert install(package) == command


@pytest.mark.parametrize(
    ("adapter", "package"), [("haystack", "haystack"), ("langchain", "langchain_core"), ("llamaindex", "llama_index")]
)
def test_an_adapter_without_its_framework_says_which_extra_has_it(
    monkeypatch: pytest.MonkeyPatch, adapter: str, package: str
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"indexmill.adapters.{adapter}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModelUnavailable) as raised:
        importlib.import_module(f"indexmill.adapters.{adapter}")
    assert str(raised.value) == (
        f"indexmill.adapters.{adapter} needs the package {package}, which is not installed: "
        f"pip install 'indexmill[{adapter}]'"
    )


def test_a_package_that_an_extra_s_own_needs_is_brought_by_that_extra() -> None:
    missing = ModuleNotFoundError("No module named 'uuid_utils'", name="uuid_utils")
    assert str(not_installed("the adapter", "langchain_core", missing)) == (
        "the adapter needs the package uuid_utils, which is not installed: pip install 'indexmill[langchain]'"
    )


def test_the_package_that_is_missing_is_named_and_a_broken_one_is_not_called_missing() -> None:
    missing = ModuleNotFoundError("No module named 'torch'", name="torch")
    assert str(not_installed("a cross-encoder", "sentence_transformers", missing)) == (
        "a cross-encoder needs the package torch, which is not installed: pip install 'indexmill[rerank]'"
    )
    broken = ImportError("libtbb.so.12: cannot open shared object file", name="openvino")
    assert str(not_installed("the encoder", "openvino", broken, "give vectors")) == (
        "the encoder needs the package openvino, which cannot be imported (libtbb.so.12: cannot open shared object "
        "file): pip install 'indexmill[query]', or give vectors"
    )


@pytest.mark.parametrize("package", ["tokenizers", "openvino"])
def test_a_retrieval_without_the_encoder_s_packages_says_which_extra_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    if package == "openvino":
        pytest.importorskip("tokenizers")
    writer = writer_of(tmp_path / "store")
    writer.tri_graph()
    tokenizer = b'{"version":"1.0","added_tokens":[],"model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"a"}}'
    for name in ENCODER_FILES:
        settings = b'{"max_tokens":8,"dimension":64,"pooling":"mean"}'
        writer.file(f"encoder/{name}", {"tokenizer.json": tokenizer, "encoder.json": settings}.get(name, b"<net/>"))
    writer.publish()
    monkeypatch.setitem(sys.modules, package, None)
    with indexmill.open(tmp_path / "store") as snapshot:
        with pytest.raises(ModelUnavailable, match=r"pip install 'indexmill\[query\]'; ") as raised:
            snapshot.retrieve("Who paid for the bridge?")
        assert f"the encoder needs the package {package}, which is not installed" in str(raised.value)
        assert "or pass the questions' vectors" in str(raised.value)


def test_every_optional_package_is_asked_for_by_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("tokenizers", "openvino", "spacy", "torch"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModelUnavailable, match=r"package tokenizers.*'indexmill\[query\]'"):
        Tokeniser(b"{}", 8)
    with pytest.raises(ModelUnavailable, match=r"package spacy.*'indexmill\[pipeline\]', or set the recogniser"):
        SpacyRecogniser("en_core_web_sm")
    for name in ENCODER_FILES:
        (tmp_path / name).write_bytes(b"{}" if name != "encoder.json" else b'{"max_tokens":8}')
    with pytest.raises(ModelUnavailable, match=r"'indexmill\[query\]'"):
        OpenVINOEmbedder.open(tmp_path)
