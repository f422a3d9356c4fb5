"""A reranker behind an HTTP endpoint: the ``/v1/rerank`` request that Jina, Cohere, vLLM and others accept.

    POST {url}   {"model", "query", "documents": [...], "top_n"}   ->   {"results": [{"index", "relevance_score"}]}

Text Embeddings Inference names the documents ``texts`` and returns ``[{"index", "score"}]``. A request that an endpoint
rejects with 422 is sent again in this form, which later requests try first. Errors are those of language model calls
(``indexmill.models.llm_errors``); their messages never quote the response.
"""

from __future__ import annotations

import json
import math
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from indexmill.errors import ConfigurationError
from indexmill.extras import not_installed
from indexmill.forks import Lock, renew_in_children
from indexmill.models.http_failures import HttpFailure, SettingNames, lost_connection
from indexmill.models.http_logs import silence
from indexmill.models.llm_errors import LlmError, LlmUnreachable, LlmUnusable
from indexmill.models.retries import Attempts, RetryLimits
from indexmill.models.secrets import RERANK_KEY_ENV, KeySource

if TYPE_CHECKING:
    import httpx2

_MOST = 1000  # the maximum documents of one request: Cohere's limit


class RerankEndpoint:
    """A reranker that sends the question and texts to an HTTP endpoint; needs ``indexmill[answer]``. Thread-safe."""

    def __init__(
        self,
        url: str,
        model: str | None = None,
        api_key_env: str = RERANK_KEY_ENV,
        timeout_seconds: float = 60.0,
        deadline_seconds: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Check the settings, without sending a request or reading the key.

        url: the service's URL, such as http://localhost:8000/v1/rerank; ``/rerank`` or ``/v1/rerank`` may be omitted.
        model: the model's name at the service; None sends no name. deadline_seconds: no retry starts after this time.
        Raises ConfigurationError for an invalid URL.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError("the reranker's URL: expected http:// or https:// and a host")
        self.url = url if parts.path.endswith("rerank") else f"{url.rstrip('/')}{_rest(parts.path)}"
        self.model = model
        self._keys = KeySource(api_key_env, required=False, setting="the reranker's key")
        self._names = SettingNames(
            "the reranker's model", "its URL", api_key_env, "SSL_CERT_FILE", "HTTPS_PROXY", "reranker"
        )
        self._timeout, self._sleep = timeout_seconds, sleep
        self._limits = RetryLimits(deadline_seconds=deadline_seconds)
        self._fields = ("documents", "texts")
        self._opened: httpx2.Client | None = None
        self._finalizer: weakref.finalize[..., RerankEndpoint] | None = None
        self._lock = Lock()
        renew_in_children(self)

    def __repr__(self) -> str:
        return f"RerankEndpoint({self.model!r} at {self.where})"

    @property
    def where(self) -> str:
        """The endpoint's host, without user and password."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """See ``Reranker``. The URL is not part of it."""
        return {"backend": "endpoint", "model": self.model}

    def cautions(self) -> list[str]:
        """Return warnings about sending the texts and the key without encryption."""
        return self._keys.cautions(self.url, "the reranker's URL")

    def scores(self, question: str, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Score texts; see ``Reranker``. Raises the errors of ``llm_errors``, and ModelUnavailable without httpx2."""
        parts = [self._batch_scores(question, texts[first : first + _MOST]) for first in range(0, len(texts), _MOST)]
        return np.concatenate([np.empty(0), *parts])

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        with self._lock:
            client, self._opened = self._opened, None
        if client is not None:
            client.close()

    def after_fork(self) -> None:
        """Drop the inherited connections, which would receive the parent's responses; the next call opens new ones."""
        if self._finalizer is not None:
            self._finalizer.detach()
        self._opened = None

    def _batch_scores(self, question: str, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        attempts = Attempts(self._limits)
        while True:
            field, alternative = self._fields
            result = self._attempt(question, texts, field)
            if isinstance(result, HttpFailure) and result.status == 422:
                instead = self._attempt(question, texts, alternative)
                if not isinstance(instead, (HttpFailure, LlmError)):
                    result, self._fields = instead, (alternative, field)
            if isinstance(result, HttpFailure):
                result = result.error(self.where, self.model or "", self._names)
            if not isinstance(result, LlmError):
                return result
            self._sleep(attempts.wait_after(result))

    def _attempt(
        self, question: str, texts: Sequence[str], field: str
    ) -> npt.NDArray[np.float64] | HttpFailure | LlmError:
        """Return the scores, or the error as a value, since the traceback of an exception would contain the texts."""
        client = self._client()
        import httpx2

        from indexmill.models.bounded_http import content_of

        body: dict[str, Any] = {"query": question, field: list(texts)}
        if field == "documents":
            body |= {"top_n": len(texts), "return_documents": False}
        if self.model is not None:
            body["model"] = self.model
        key = self._keys.read()
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        try:
            with client.stream("POST", self.url, json=body, headers=headers) as response:
                content = content_of(response)
        except LlmUnusable as error:
            return error.with_traceback(None)
        except httpx2.TimeoutException as error:
            if isinstance(error, (httpx2.ConnectTimeout, httpx2.PoolTimeout)):
                return lost_connection(error, self.where, self._names)
            return LlmUnreachable(f"{self.where}: no answer within {self._timeout:g} s", retry=True, billed="maybe")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return lost_connection(error, self.where, self._names)
        if response.status_code >= 300:
            return HttpFailure.of(response.status_code, response.headers, content, time.time())
        return _scores(content, len(texts), self.where)

    def _client(self) -> httpx2.Client:
        with self._lock:
            if self._opened is None:
                try:
                    import httpx2
                except ImportError as error:
                    raise not_installed("a reranker behind an endpoint", "httpx2", error) from None
                silence()
                self._opened = httpx2.Client(timeout=self._timeout)
                self._finalizer = weakref.finalize(self, self._opened.close)
            return self._opened


def _rest(path: str) -> str:
    """Return the missing end of the service's path: ``/rerank`` after a version such as ``v1``, else ``/v1/rerank``."""
    last = path.rstrip("/").rpartition("/")[2]
    return "/rerank" if last[:1] == "v" and last[1:].isdigit() else "/v1/rerank"


def _scores(content: bytes, count: int, where: str) -> npt.NDArray[np.float64] | LlmError:
    """Return the scores in an answer, in the order of the texts, or an error if the answer is not usable."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    rows = answer.get("results", answer.get("data")) if isinstance(answer, dict) else answer
    if not isinstance(rows, list):
        return LlmUnusable(f"{where}: the response is not a list of scores; check that the URL ends in /rerank")
    scores = np.full(count, np.nan)
    for row in rows:
        index = row.get("index") if isinstance(row, dict) else None
        score = row.get("relevance_score", row.get("score")) if isinstance(row, dict) else None
        if (
            not isinstance(index, int)
            or not 0 <= index < count
            or isinstance(score, bool)
            or not isinstance(score, (int, float))
            or not math.isfinite(score)
        ):
            return LlmUnusable(f"{where} answered with an invalid score, or a score for a text that was not sent")
        scores[index] = score
    if np.isnan(scores).any():
        return LlmUnusable(f"{where} scored {int((~np.isnan(scores)).sum())} of {count} texts")
    return scores
