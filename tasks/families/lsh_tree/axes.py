"""Stage `lsh_axes`: an encoder's principal axes, used as the first hyperplanes of lsh_tree (not in the paper).

In hundreds of dimensions most random hyperplanes cut along directions in which texts hardly vary. The principal axes of
the short texts in topics.txt, on very different subjects, depend on the encoder alone, not on the passages, so segments
stay as local as with random hyperplanes, and their passages are more similar. The list is not specific to any corpus,
but codes depend on it: a different list gives different segments. Its order does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.store.canonical import canonical_json, digest_of
from indexmill.store.pack_schema import Array, PackSchema
from tasks.core.encoder import encoder_of
from tasks.core.encoder_estimate import texts_to_send
from tasks.core.stage import Output, Outputs, Part, Stage, StageSettings, worker_arg
from tasks.families.lsh_tree.hyperplanes import LARGEST_NORMAL

AXES = 32

DIRECTIONS = PackSchema(
    "the axes of an encoder",
    {"axes": Array("int16", ("axes", "dimensions"), "the widest first, at most AXES")},
)

TOPICS = tuple(files("tasks.families.lsh_tree").joinpath("topics.txt").read_text("utf-8").splitlines())

TOPICS_DIGEST = digest_of(canonical_json(sorted(TOPICS)))
"""The digest of the subjects, the only input of the axes besides the encoder."""


def principal_axes(vectors: NDArray[np.float32]) -> NDArray[np.int16]:
    """Return axes (m, d) int16 along which vectors (n, d) vary, each scaled to a largest component of 2**10."""
    exact = vectors.astype(np.float64)
    lengths, axes = np.linalg.svd(exact - exact.mean(axis=0), full_matrices=False)[1:]
    axes = axes[:AXES][lengths[:AXES] > 1e-6 * max(lengths[0], 1e-6)]
    peaks = axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)]
    whole: NDArray[np.int16] = np.rint(axes / peaks[:, None] * LARGEST_NORMAL).astype(np.int16)
    return whole


@dataclass(frozen=True, kw_only=True)
class AxesSettings(StageSettings):
    """texts: the subjects' digest. encoder: the settings that determine vectors. opening: other encoder settings."""

    encoder: Mapping[str, Any]
    texts: str = TOPICS_DIGEST
    opening: Mapping[str, Any] = worker_arg()


def _compute(part: Part[AxesSettings]) -> Outputs:
    return Outputs(packs={"axes": {"axes": principal_axes(encoder_of(part).encode(sorted(TOPICS)))}})


STAGE = Stage(
    "lsh_axes",
    version=1,
    compute=_compute,
    libraries=("numpy",),
    outputs=(Output("axes", DIRECTIONS),),
    uses_encoder=True,
    encodes=lambda part, _: texts_to_send(part, sorted(TOPICS)),
)
