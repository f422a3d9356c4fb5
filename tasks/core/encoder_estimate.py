"""Estimates of what a part asks of an encoder behind an endpoint, from its texts, or from bounds of texts to come."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from indexmill.models.openai_embeddings import most_tokens
from tasks.core.encoder import EncoderChoice, encoder_of
from tasks.core.estimate import ZERO, EncoderTexts, LlmUse, Range
from tasks.core.stage import Part
from tasks.llm.vectors import TASK, EncoderAccess, batches_of, keys_of, known_keys

__all__ = ["texts_to_come", "texts_to_send", "use_of_encoder"]

_DRIFT = 1.1
"""The likely bound above what the tokenizer counts, since the endpoint's may be another."""

_BYTES = 16
"""A token has at most so many bytes on the average of a text."""

_USUAL = 160
"""The tokens of a text that a stage writes, where its length is open."""


def texts_to_send(part: Part[Any], texts: Sequence[str]) -> EncoderTexts:
    """The use of the endpoint for some texts, without those whose vectors the ledger has; equal ones count once."""
    access: EncoderAccess = part.settings.opening["access"]
    embedder = encoder_of(part)
    sent, tokens = embedder.sent(list(dict.fromkeys(texts)))  # type: ignore[attr-defined]
    distinct = dict(zip(keys_of(access.client.shaping, sent), zip(sent, tokens, strict=True), strict=True))
    known = known_keys(part.store, list(distinct), embedder.dimension)
    missing = [key for key, there in zip(distinct, known, strict=True) if not there]
    counts = [distinct[key][1] for key in missing]
    return EncoderTexts(
        keys=np.array([int(key[:16], 16) for key in missing], np.uint64),
        tokens=np.array(counts, np.int64),
        bytes=np.array([len(distinct[key][0].encode("utf-8", "replace")) for key in missing], np.int64),
        calls=sum(1 for _ in batches_of(counts, access.settings)),
    )


def texts_to_come(part: Part[Any], count: Range | None) -> EncoderTexts:
    """The use of the endpoint for texts that are not written yet. count: bounds of their number."""
    return EncoderTexts(unknown=count or ZERO, longest=encoder_of(part).max_tokens)


def use_of_encoder(parts: Iterable[EncoderTexts], choice: EncoderChoice, first_question: Sequence[str]) -> LlmUse:
    """The use of an endpoint by all parts of a run; a text that several need is sent once.

    first_question: the texts that the endpoint is asked first; empty if it was asked before.
    """
    settings = choice.endpoint
    assert settings is not None  # noqa: S101 - only an endpoint is asked
    found = list(parts)
    keys = np.concatenate([np.empty(0, np.uint64), *(one.keys for one in found)])
    tokens, sizes = (
        np.concatenate([np.empty(0, np.int64), *(getattr(one, name) for one in found)]) for name in ("tokens", "bytes")
    )
    _, first = np.unique(keys, return_index=True)
    calls, shared = sum(one.calls for one in found), len(keys) - len(first)
    unknown = sum((one.unknown for one in found), ZERO)
    come = [sum(getattr(one.unknown, end) * one.longest for one in found) for end in ("low", "high")]
    usual = [sum(getattr(one.unknown, end) * min(one.longest, _USUAL) for one in found) for end in ("low", "high")]
    asked = bool(first_question)
    first_tokens = int(choice.count_tokens(first_question).sum()) if asked else 0
    count, size = len(first), int(sizes[first].sum()) + sum(len(text.encode()) for text in first_question)
    counted = int(tokens[first].sum()) + first_tokens
    expected = counted + sum(usual) // 2
    high = size + most_tokens([""]) * (count + unknown.high + len(first_question)) + _BYTES * come[1]
    likely = min(high, math.ceil(_DRIFT * counted) + come[1])
    least = max(-(-count // settings.batch_texts), calls - shared)
    return LlmUse(
        model=settings.model,
        calls=Range(least + asked, calls + asked + unknown.high),
        input_tokens=Range(min(size // _BYTES, high), high),
        output_tokens=ZERO,
        tasks=(TASK,),
        prompts=Range(count + unknown.low, count + unknown.high),
        counted=Range(min(expected, likely), likely),
    )
