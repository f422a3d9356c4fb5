"""Estimates of a part's use of an encoder behind an endpoint, from its texts, or bounds on texts not yet written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from indexmill.models.openai_embeddings import most_tokens
from tasks.core.encoder import EncoderChoice, encoder_of
from tasks.core.estimate import ZERO, EncoderTexts, LlmUse, Range
from tasks.core.stage import Part
from tasks.llm.vectors import TASK, EncoderAccess, batches_of, is_known

_DRIFT = 1.1
"""The likely ratio of billed tokens to tokens counted here, since the endpoint may use another tokenizer."""

_BYTES = 16
"""The maximum bytes per token, on average over a text."""

_USUAL = 160
"""The expected number of tokens of a text that is not written yet."""


def texts_to_send(part: Part[Any], texts: Sequence[str]) -> EncoderTexts:
    """Estimate the use of the endpoint for distinct texts, without the batches whose vectors are in the ledger."""
    access: EncoderAccess = part.settings.opening["access"]
    embedder = encoder_of(part)
    sent, tokens = embedder.sent(texts)  # type: ignore[attr-defined]
    batches = [
        batch
        for batch in batches_of(sent, tokens, access.settings, embedder.dimension)
        if not is_known(part.store, access, [sent[at] for at in batch], embedder.dimension)
    ]
    missing = [at for batch in batches for at in batch]
    return EncoderTexts(
        calls=len(batches),
        texts=len(missing),
        tokens=sum(tokens[at] for at in missing),
        bytes=sum(len(sent[at].encode("utf-8", "replace")) for at in missing),
    )


def texts_to_come(part: Part[Any], count: Range | None) -> EncoderTexts:
    """Estimate the use of the endpoint for texts that are not written yet. count: bounds of the number of texts."""
    return EncoderTexts(unknown=count or ZERO, longest=encoder_of(part).max_tokens)


def use_of_encoder(parts: Iterable[EncoderTexts], choice: EncoderChoice, first_question: Sequence[str]) -> LlmUse:
    """Estimate a run's use of the endpoint. first_question: the texts of the very first call to it; may be empty."""
    if choice.endpoint is None:
        raise ValueError("the encoder is not behind an endpoint")
    estimates = list(parts)
    if first_question:
        tokens = int(choice.count_tokens(first_question).sum())
        estimates.append(
            EncoderTexts(1, len(first_question), tokens, sum(len(text.encode()) for text in first_question))
        )
    calls, texts, tokens, size = (
        sum(getattr(one, name) for one in estimates) for name in ("calls", "texts", "tokens", "bytes")
    )
    unknown = sum((one.unknown for one in estimates), ZERO)
    longest = sum(one.unknown.high * one.longest for one in estimates)
    usual = sum((one.unknown.low + one.unknown.high) / 2 * min(one.longest, _USUAL) for one in estimates)
    high = size + most_tokens([""]) * (texts + unknown.high) + _BYTES * longest
    likely = min(high, math.ceil(_DRIFT * tokens) + longest)
    return LlmUse(
        model=choice.endpoint.model,
        calls=Range(calls, calls + unknown.high),
        input_tokens=Range(min(size // _BYTES, high), high),
        output_tokens=ZERO,
        tasks=(TASK,),
        prompts=Range(texts + unknown.low, texts + unknown.high),
        counted=Range(min(tokens + math.ceil(usual), likely), likely),
    )
