"""Quantisation of an encoder's graph to 8-bit integers: `embed.precision: int8`.

Weights become integers with a scale for each row, and activations become integers within the ranges that the
calibration texts show (nncf's static quantisation of transformers: symmetric weights, asymmetric activations, and
scales smoothed between the two). Norms, attention and pooling stay in floats. So do products that narrow a layer (the
second product of a feed-forward network): their input has a long tail, and quantising them causes most of the error.
The stage `encoder` quantises once; opening the files does not need nncf.

The calibration texts are part of this package: prose, questions, names, documentation with tables, settings and code,
from a few tokens to the maximum length. Other kinds of text may have activations beyond these ranges, which are
clipped. The texts' digest is in the encoder's settings and fingerprint. The same machine makes the same bytes; on
another kind of processor, ranges may differ in the last bit.
"""

from __future__ import annotations

import logging
from importlib import metadata
from importlib.resources import files
from typing import Any

import numpy as np

from indexmill.errors import ModelUnavailable
from indexmill.extras import not_installed
from indexmill.models.openvino_encoder import without_telemetry
from indexmill.models.quiet import quiet
from indexmill.store.canonical import digest_of


def calibration_texts() -> list[str]:
    """Return the texts that show the ranges of an encoder's activations."""
    return _calibration().decode("utf-8").splitlines()


def quantisation() -> dict[str, str]:
    """Return the values that shape a quantised graph besides the model: the digest of the texts and nncf's version.

    Raises ModelUnavailable if nncf is not installed.
    """
    try:
        version = metadata.version("nncf")
    except metadata.PackageNotFoundError as error:
        raise _missing() from error
    return {"calibration": digest_of(_calibration()), "nncf": version}


def quantise(graph: Any, tokens: list[list[int]]) -> Any:
    """Quantise a graph's matrix products, calibrated with lists of token ids. Raises ModelUnavailable without nncf."""
    with quiet(), without_telemetry():
        try:
            import nncf  # an optional library
            import rich  # a dependency of nncf
            from nncf.quantization.range_estimator import RangeEstimatorParametersSet
        except ImportError as error:
            raise _missing(error) from error
        nncf.set_log_level(logging.ERROR)
        data = nncf.Dataset([np.array([ids], np.int64) for ids in tokens])
        console = rich.get_console()  # nncf prints its progress here
        before, console.quiet = console.quiet, True
        seen = nncf.AdvancedQuantizationParameters(
            activations_range_estimator_params=RangeEstimatorParametersSet.MINMAX
        )
        try:
            return nncf.quantize(
                graph,
                data,
                model_type=nncf.ModelType.TRANSFORMER,
                subset_size=len(tokens),
                ignored_scope=nncf.IgnoredScope(names=_narrowing(graph)),
                advanced_parameters=seen,
            )
        finally:
            console.quiet = before


def _narrowing(graph: Any) -> list[str]:
    """Return the names of products whose output is narrower than their input, by the shape of their weights."""
    narrowing = []
    for node in graph.get_ordered_ops():
        if node.get_type_name() != "MatMul":
            continue
        weights = node.get_input_partial_shape(1)
        if weights.is_static and len(weights) == 2:
            first, second = weights.to_shape()
            width_in, width_out = (second, first) if node.get_attributes()["transpose_b"] else (first, second)
            if width_in > width_out:
                narrowing.append(node.get_friendly_name())
    return narrowing


def _calibration() -> bytes:
    return files("tasks.core").joinpath("calibration.txt").read_bytes()


def _missing(error: ImportError | None = None) -> ModelUnavailable:
    return not_installed("embed.precision: int8", "nncf", error, instead="set embed.precision to auto", extra="int8")
