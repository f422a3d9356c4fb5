"""An encoder whose products are quantised: made the same each time, close to the whole one, and read without nncf."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from indexmill.errors import ConfigurationError, CorruptBlob, ModelUnavailable
from indexmill.models.openvino_encoder import ENCODER_FILES, OpenVINOEmbedder, import_openvino, openvino_core
from indexmill.models.padded_rows import pad_rows, padded_rows
from tasks.core import convert as converting
from tasks.core.convert import convert
from tasks.core.quantise import calibration_texts, quantisation, quantise
from tests.encoders import needs_model, texts
from tests.sentence_models import needs_sentence_transformers, saved

pytestmark = [
    needs_model,
    needs_sentence_transformers,
    pytest.mark.skipif(importlib.util.find_spec("nncf") is None, reason="needs nncf"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved("cls", tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def quantised(model: Path) -> dict[str, bytes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(converting, "calibration_texts", lambda: calibration_texts()[::6])
        made = convert(model, precision="int8")
        assert convert(model, precision="int8") == made  # the same bytes every time
    return made


@pytest.fixture(scope="module")
def folder(quantised: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("quantised")
    for name, data in quantised.items():
        (found / name).write_bytes(data)
    return found


def test_the_calibration_texts_are_of_many_lengths_and_kinds() -> None:
    every = calibration_texts()
    assert len(set(every)) == len(every) == 171
    lengths = sorted(map(len, every))
    assert lengths[0] < 20
    assert lengths[-1] > 700
    assert any(text.endswith("?") for text in every)


def test_a_quantised_encoder_says_so(folder: Path, model: Path, tmp_path: Path) -> None:
    for name, data in convert(model).items():
        (tmp_path / name).write_bytes(data)
    whole, encoder = OpenVINOEmbedder.open(tmp_path), OpenVINOEmbedder.open(folder, precision="int8")
    assert encoder.fingerprint.precision == f"int8+{whole.fingerprint.precision}"
    assert encoder.fingerprint.as_dict()["calibration"] == quantisation()["calibration"]
    assert "calibration" not in whole.fingerprint.as_dict()
    assert encoder.fingerprint.reproducible
    settings = json.loads((folder / "encoder.json").read_bytes())
    assert "nncf" in settings["converted_with"]
    with pytest.raises(ConfigurationError, match="precision is int8, but this encoder is not quantised"):
        OpenVINOEmbedder.open(tmp_path, precision="int8")


@pytest.mark.slow
def test_its_products_are_of_integers_and_its_vectors_close_to_the_whole_ones(
    folder: Path, model: Path, tmp_path: Path
) -> None:
    for name, data in convert(model).items():
        (tmp_path / name).write_bytes(data)
    assert (folder / "openvino.bin").stat().st_size < (tmp_path / "openvino.bin").stat().st_size
    own = texts(30)
    one = OpenVINOEmbedder.open(tmp_path, precision="f32").encode(own)
    other = OpenVINOEmbedder.open(folder, precision="f32").encode(own)
    cosines = (one * other).sum(axis=1)
    assert 0.95 < cosines.min() < 0.999999


def test_products_that_narrow_a_layer_stay_in_floats(folder: Path) -> None:
    graph = openvino_core().read_model(str(folder / "openvino.xml"))
    is_quantised: dict[bool, set[bool]] = {True: set(), False: set()}
    for node in graph.get_ordered_ops():
        if node.get_type_name() != "MatMul":
            continue
        weights = node.get_input_partial_shape(1)
        if weights.is_static and len(weights) == 2:
            given, read = node.get_input_shape(1)
            is_quantised[read > given].add(node.input_value(0).get_node().get_type_name() == "FakeQuantize")
    assert is_quantised == {True: {False}, False: {True}}


@pytest.mark.slow
def test_a_text_has_the_same_bits_alone_and_in_any_batch(folder: Path) -> None:
    encoder, own = OpenVINOEmbedder.open(folder, streams=2), texts(30, seed=5)
    vectors = encoder.encode(own)
    assert np.array_equal(OpenVINOEmbedder.open(folder).encode(own[::-1]), vectors[::-1])
    for row in range(0, 30, 4):
        assert np.array_equal(encoder.encode(own[row : row + 1])[0], vectors[row])


@pytest.mark.slow
def test_filled_up_rows_leave_its_bits_as_they_are(folder: Path) -> None:
    openvino, core = import_openvino(), openvino_core()
    graphs = [core.read_model(str(folder / "openvino.xml")) for _ in range(2)]
    assert pad_rows(openvino, graphs[1])
    products = [node for node in graphs[1].get_ordered_ops() if node.get_type_name() == "MatMul"]
    quantised = [node for node in products if node.input_value(0).get_node().get_type_name() == "FakeQuantize"]
    assert quantised
    assert all(node.get_input_partial_shape(0)[0] == 1 for node in quantised)
    whole, padded = (core.compile_model(one, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}) for one in graphs)
    for shape in ((1, 3), (1, 12), (7, 13), (20, 16), (3, 77)):
        ids = np.random.default_rng(shape).integers(4, 100, shape)
        rows = np.array([padded_rows(ids.size)])
        assert np.array_equal(whole([ids])[0], padded({0: ids, 1: rows})[0]), shape


def test_who_opens_it_needs_no_nncf_and_nothing_is_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "nncf"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nncf", None)
    assert OpenVINOEmbedder.open(folder).encode(["a mill"]).shape == (1, 32)
    assert capfd.readouterr().out == ""


def test_without_nncf_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nncf", None)
    with pytest.raises(ModelUnavailable, match=r"nncf.*pip install 'indexmill\[int8\]', or set embed\.precision to"):
        quantise(None, [[1, 2]])


@pytest.mark.parametrize("said", ["7", '{"calibration":7}', "[]", '"all"'])
def test_settings_that_misstate_the_quantisation_are_refused(folder: Path, tmp_path: Path, said: str) -> None:
    for name in ENCODER_FILES:
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    settings = json.loads((folder / "encoder.json").read_bytes()) | {"quantised": json.loads(said)}
    (tmp_path / "encoder.json").write_text(json.dumps(settings))
    with pytest.raises(CorruptBlob, match="quantised is"):
        OpenVINOEmbedder.open(tmp_path)
