"""Vectors of the endpoint of ``tests.llm_server``: ``POST /v1/embeddings``, its bill by text, and what goes wrong.

A text's vector is that of the deterministic double, and a little more that depends on the call: as with real endpoints,
whoever asks twice gets other bits, so that two manifests are the same only if no batch was asked twice.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.models.embedder import HashEmbedder

if TYPE_CHECKING:
    from tests.llm_server import LlmServer, Received, Reply

SPOILED_VECTORS = frozenset(
    [
        "nan",
        "zero",
        "none",
        "too-few",
        "too-many",
        "foreign",
        "twice",
        "mixed",
        "words",
        "not-base64",
        "no-list",
        "html",
    ]
)
"""Answers of use to nobody, which are on the bill."""

_LOST = {"drop-billed", "drop-midway"}


@dataclass
class Embeddings:
    """What an endpoint says of texts. Attributes may be set while it serves.

    rule: what goes wrong with a call, by its number and its texts: a kind of `SPOILED_VECTORS`, or one of
    ``llm_server.KINDS`` that is no answer. refused: the status for a text that is not taken. native: the dimension of
    the model. takes_dimensions: False for a model that refuses the parameter, None for one that overlooks it.
    takes_base64: False for an endpoint that refuses it. jitter: how much the call matters.
    """

    rule: Callable[[int, list[str]], str | None] = lambda number, texts: None
    refused: Callable[[str], int | None] = lambda text: None
    native: int = 64
    takes_dimensions: bool | None = True
    takes_base64: bool = True
    jitter: float = 1e-3
    calls: int = 0  # that came
    billed_calls: int = 0
    tokens: int = 0
    texts: Counter[str] = field(default_factory=Counter)  # by text, how often a good vector was delivered
    batches: Counter[tuple[str, ...]] = field(default_factory=Counter)  # the same by all texts of a call
    bodies: list[Mapping[str, Any]] = field(default_factory=list)
    models: list[str] = field(default_factory=list)

    def paid_twice(self) -> dict[tuple[str, ...], int]:
        """The batches whose good vectors were delivered more than once."""
        return {texts: count for texts, count in self.batches.items() if count > 1}

    def reply(self, server: LlmServer, received: Received) -> Reply | None:
        """What to send back; None drops the socket."""
        from tests.llm_server import REFUSED_HERE, REJECTED_HERE, Reply

        try:
            body = received.json()
            texts = body["input"]
            assert isinstance(texts, list)
            assert texts
            assert all(isinstance(text, str) for text in texts)
        except (ValueError, KeyError, TypeError, AssertionError):
            return Reply.error(400, "not a request for vectors")
        with server.lock:
            self.calls += 1
            number = self.calls
            self.bodies.append(body)
        fault = self.rule(number, texts)
        server.faulted[fault or ""] += 1
        if server.seconds:
            server.stopping.wait(server.seconds)
        if body.get("encoding_format") == "base64" and not self.takes_base64:
            return Reply.error(400, "Invalid value: 'encoding_format' has to be float")
        if "dimensions" in body and self.takes_dimensions is False:
            return Reply.error(400, "This model does not support specifying dimensions.")
        if any(not text for text in texts):
            return Reply.error(400, "input cannot be an empty string")
        for text in texts:
            if (status := self.refused(text)) is not None:
                return Reply.error(status, f"cannot take {text}")
        if fault in REFUSED_HERE | REJECTED_HERE:
            return server.refused(fault, texts[-1])
        if fault == "hang":
            server.stopping.wait(server.faults.hang_seconds)
            return None
        if fault == "drop":
            return None
        answer = self._answer(body, texts, number, fault)
        lost = fault in _LOST or fault in SPOILED_VECTORS
        with server.lock:
            self.billed_calls += 1
            self.tokens += answer["usage"]["prompt_tokens"]
            if not lost:
                self.texts.update(texts)
                self.batches[tuple(texts)] += 1
        if fault == "drop-billed":
            return None
        if fault == "html":
            return Reply(200, b"<html><body>Please sign in</body></html>", {"content-type": "text/html"})
        if fault == "no-usage":
            del answer["usage"]
        reply = Reply(200, json.dumps(answer).encode(), {"content-type": "application/json"})
        return Reply(200, reply.body, reply.headers, len(reply.body) // 2) if fault == "drop-midway" else reply

    def _answer(self, body: Mapping[str, Any], texts: list[str], number: int, fault: str | None) -> dict[str, Any]:
        wanted = body.get("dimensions") if self.takes_dimensions else None
        rows = [self._vector(text, number)[: wanted or self.native] for text in texts]
        last = rows[-1]
        match fault:
            case "nan":
                last[0] = np.nan
            case "zero":
                last[:] = 0
            case "too-few":
                rows.pop()
            case "too-many":
                rows.append(last)
            case "mixed":
                rows[-1] = last[:-1]
        data: list[dict[str, Any]] = [
            {"object": "embedding", "index": place, "embedding": self._sent(body, row)}
            for place, row in enumerate(rows)
        ]
        match fault:
            case "none":
                data[-1]["embedding"] = None
            case "words":
                data[-1]["embedding"] = ["a", "b"]
            case "not-base64":
                data[-1]["embedding"] = "!?"
            case "foreign":
                data[-1]["index"] = len(texts)
            case "twice":
                data[-1]["index"] = 0
                data = [data[0], *data] if len(data) == 1 else data
        tokens = int(HashEmbedder().count_tokens(texts).sum())
        return {
            "object": "list",
            "data": {"of": data} if fault == "no-list" else list(reversed(data)),  # the order is no promise
            "model": body["model"],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }

    def _vector(self, text: str, number: int) -> NDArray[np.float32]:
        row = np.tile(HashEmbedder(8192).encode([text])[0], -(-self.native // 64))[: self.native].copy()
        row[number % self.native] += self.jitter
        return row

    @staticmethod
    def _sent(body: Mapping[str, Any], row: NDArray[np.float32]) -> str | list[float]:
        if body.get("encoding_format") == "base64":
            return base64.b64encode(row.astype("<f4").tobytes()).decode()
        return [float(number) for number in row]
