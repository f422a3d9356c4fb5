"""Quantising an encoder's graph to 8-bit integers: `embed.precision: int8`.

Weights become integers with a scale for each row, and the numbers that products read become integers within the ranges
that the calibration texts show (nncf's static quantisation of transformers: symmetric weights, asymmetric activations,
and scales smoothed between the two). Norms, attention and pooling stay in floats. So do the products that narrow a
layer, a feed-forward network's second: what they read has a long tail, and in integers they cost most of the error. It
happens once, in the stage `encoder`; whoever opens the files needs no nncf.

The texts are part of this package: prose, questions, names, documentation with its tables, settings and code, of a few
tokens to the maximum. A kind of text that is not among them has numbers beyond their ranges, which are cut off there.
Their digest is in the encoder's settings and in its fingerprint. The same machine makes the same bytes; another kind of
processor may find ranges that differ in the last bit.
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
    """The texts that show the ranges of an encoder's numbers."""
    return _calibration().decode("utf-8").splitlines()


def quantisation() -> dict[str, str]:
    """The values that shape a quantised graph beside the model: the texts' digest and nncf's version.

    Raises ModelUnavailable where nncf is not installed.
    """
    try:
        version = metadata.version("nncf")
    except metadata.PackageNotFoundError as error:
        raise _missing() from error
    return {"calibration": digest_of(_calibration()), "nncf": version}


def quantise(graph: Any, tokens: list[list[int]]) -> Any:
    """A graph of token ids ``(texts, tokens)`` with 8-bit products, calibrated by the token ids of some texts.

    Raises ModelUnavailable where nncf is not installed.
    """
    with quiet(), without_telemetry():
        try:
            import nncf  # an optional library
            import rich  # its own
            from nncf.quantization.range_estimator import RangeEstimatorParametersSet
        except ImportError as error:
            raise _missing(error) from error
        nncf.set_log_level(logging.ERROR)
        data = nncf.Dataset([np.array([ids], np.int64) for ids in tokens])
        console = rich.get_console()  # which shows its progress
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
    """The names of the products of a graph that read more numbers for each token than they give, by their weights."""
    found = []
    for node in graph.get_ordered_ops():
        if node.get_type_name() != "MatMul":
            continue
        weights = node.get_input_partial_shape(1)
        if weights.is_static and len(weights) == 2:
            first, second = weights.to_shape()
            read, given = (second, first) if node.get_attributes()["transpose_b"] else (first, second)
            if read > given:
                found.append(node.get_friendly_name())
    return found


def _calibration() -> bytes:
    return files("indexmill.models").joinpath("calibration.txt").read_bytes()


def _missing(error: ImportError | None = None) -> ModelUnavailable:
    return not_installed("embed.precision: int8", "nncf", error, instead="set embed.precision to auto", extra="int8")
