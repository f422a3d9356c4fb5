"""Conversion of an endpoint's HTTP failures to the errors of ``indexmill.models.llm_errors``.

Messages repeat nothing from the endpoint except its error code, and only if that is one word: error texts may contain
prompts and pieces of keys.
"""

from __future__ import annotations

import contextlib
import email.utils
import json
import math
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from indexmill.models.llm_errors import LlmBusy, LlmError, LlmForbidden, LlmRejected, LlmUnreachable
from indexmill.models.secrets import redacted

_NO_MONEY = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance"}
)
_TRY_LATER = frozenset({408, 409, 425, 429})
_OVERLOADED = frozenset({408, 429, 503, 504, 524, 529})
_GATEWAY_GAVE_UP = frozenset({408, 502, 504, 520, 522, 524})
"""The statuses of a gateway or proxy that timed out; the model may have done the work."""

_SUBJECT = frozenset({"content_filter", "content_policy_violation", "data_inspection_failed", "invalid_prompt"})
"""The codes of OpenAI, Azure, gateways and Alibaba's Model Studio for a prompt that a filter blocked."""

_TOO_LONG = frozenset({"context_length_exceeded", "exceed_context_size_error"})
"""The codes of OpenAI and llama.cpp for a request that is longer than the model's context."""

_LENGTH = re.compile(
    r"maximum context length|context (size|window)|context length of|max_new_tokens`? must be|too large for model",
    re.IGNORECASE,
)
"""What vLLM, llama.cpp, LM Studio, TGI and gateways write about such a request."""

_CONTEXT = re.compile(r"(?:context length is|must be <=) (\d+)")
_PROMPT = re.compile(r"(\d+) (?:in the messages|in your prompt|input tokens|`inputs` tokens)")

_FORM = re.compile(r"response_?.?format|json_?.?schema|json_?.?object|structured.?output|guided|grammar", re.IGNORECASE)

_STREAM = re.compile(r"\bstream(_options|ing)?\b", re.IGNORECASE)

_TEMPERATURE = re.compile(r"unsupported (value|parameter): '?temperature", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SettingNames:
    """The names of an endpoint's settings and of the endpoint's service, for messages."""

    model: str = "llm.model"
    url: str = "llm.base_url"
    keys: str = "llm.api_key_env, llm.api_key_file and llm.token_provider"
    certificates: str = "llm.ca_file"
    proxy: str = "llm.proxy"
    service: str = "chat completion"
    timeout: str = "llm.timeout_seconds"


LLM_SETTINGS = SettingNames()


@dataclass(frozen=True, slots=True, repr=False)
class HttpFailure:
    """An error status with the error code, parameter, message and delay in its response."""

    status: int
    code: str
    parameter: str
    message: str
    after: float | None

    @classmethod
    def of(cls, status: int, headers: Mapping[str, str], content: bytes, now: float) -> HttpFailure:
        """Read the failure from a response. now: this machine's time, for dates in headers."""
        error: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            error = json.loads(content)
        if isinstance(error, dict):
            error = error.get("error", error.get("detail", error))
        if isinstance(error, list):  # FastAPI: also with the rejected input, which is the prompt
            problems = (problem for problem in error if isinstance(problem, dict))
            error = "; ".join(f"{problem.get('loc')} {problem.get('msg')}" for problem in problems)
        fields = error if isinstance(error, dict) else {"message": error}
        code = fields.get("code") if isinstance(fields.get("code"), str) else fields.get("type")
        message = fields.get("message")
        return cls(
            status=status,
            code=_word(code),
            parameter=_word(fields.get("param")),
            message=message if isinstance(message, str) else json.dumps(message),
            after=retry_after(headers, now),
        )

    def blames(self) -> Literal["form", "limit", "stream", "temperature", "length", "subject", ""]:
        """Return the part of the request that the endpoint rejects; empty if it is not known."""
        if self.status not in (400, 404, 415, 422, 501):
            return ""
        if self.code in _TOO_LONG or _LENGTH.search(self.message):
            return "length"
        if self.code in _SUBJECT:
            return "subject"
        if self.parameter == "temperature" or _TEMPERATURE.match(self.message):
            return "temperature"
        if re.search(r"max_(completion_)?tokens", f"{self.parameter} {self.message}"):
            return "limit"
        if _FORM.search(f"{self.parameter} {self.message}"):
            return "form"
        return "stream" if _STREAM.search(f"{self.parameter} {self.message}") else ""

    def room(self) -> int:
        """Return the tokens that the context leaves for an answer to this prompt; 0 if none, or if it is not known."""
        context, prompt = _CONTEXT.search(self.message), _PROMPT.search(self.message)
        return max(int(context[1]) - int(prompt[1]), 0) if context and prompt else 0

    def error(self, where: str, model: str, names: SettingNames = LLM_SETTINGS) -> LlmError:
        """Return the error to raise. where: the endpoint's host."""
        prefix = f"{where} answered {self.status}{f' ({self.code})' if self.code else ''}"
        stops = self._stops(model, names)
        if stops:
            return LlmForbidden(f"{prefix}: {stops}")
        if self.status in _TRY_LATER or self.status >= 500:
            billed: Literal["no", "maybe"] = "maybe" if self.status in _GATEWAY_GAVE_UP else "no"
            why = "too many requests" if self.status == 429 else "the service is busy or failed"
            busy = LlmBusy(f"{prefix}: {why}", retry=True, retry_after=self.after, billed=billed)
            busy.overloaded = self.status in _OVERLOADED
            return busy
        blamed = {"length": "the prompt is longer than the model's context", "subject": "a filter blocked the prompt"}
        error = LlmRejected(f"{prefix}: {blamed.get(self.blames(), 'the request was rejected')}")
        error.of_prompt = self.blames() in blamed or self.status == 413
        error.filtered = self.blames() == "subject"
        return error

    def _stops(self, model: str, names: SettingNames) -> str:
        """Return why no request can succeed, and the setting to change; empty if a different request may succeed."""
        if self.status == 402 or self.code in _NO_MONEY:
            return "the account has no credit left, or has reached its limit"
        if self.code == "model_not_found":
            return f"there is no model {model!r} for this key: see {names.model}"
        if 300 <= self.status < 400:
            return f"it redirects, and redirects are not followed: see {names.url}"
        match self.status:
            case 401:
                return f"the key is missing or wrong: see {names.keys}"
            case 403:
                return f"the key may not use the model {model!r}: see {names.model}, and the account's permissions"
            case 404 | 405:
                return f"there is no {names.service} or no model {model!r} there: see {names.url} and {names.model}"
            case 407:
                return f"the proxy requires a user and a password: see {names.proxy}"
        if self.blames() == "temperature":
            return f"the model {model!r} does not accept this temperature: set llm.temperature to null"
        return ""


def lost_connection(cause: BaseException | None, where: str, names: SettingNames = LLM_SETTINGS) -> LlmError:
    """Convert the HTTP library's exception for a failed connection."""
    import httpx2

    if any(isinstance(error, ssl.SSLCertVerificationError) for error in _chain(cause)):
        return LlmForbidden(f"{where}: its certificate is not trusted: see {names.certificates}")
    if isinstance(cause, httpx2.ProxyError) and str(cause).startswith(("401", "403", "407")):
        return LlmForbidden(f"the proxy rejects the connection: see {names.proxy}")
    if isinstance(cause, (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError)):
        return LlmForbidden(
            f"{where}: the request cannot be sent ({type(cause).__name__}): see {names.url} and {names.proxy}"
        )
    unsent = isinstance(cause, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError))
    kind = type(cause).__name__
    if unsent:
        return LlmUnreachable(f"{where}: no connection ({kind}): see {names.url} and {names.proxy}", retry=True)
    return LlmUnreachable(
        f"{where}: the connection was lost before the answer arrived ({kind})", retry=True, billed="maybe"
    )


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that the endpoint asks to wait before the next request; None if it gives no readable time.

    A date is compared with the `Date` of the response, so that a wrong local clock does no harm.
    """
    with contextlib.suppress(KeyError, ValueError):
        return _seconds(float(headers["retry-after-ms"]) / 1000)
    text = headers.get("retry-after", "")
    with contextlib.suppress(ValueError):
        return _seconds(float(text))
    with contextlib.suppress(ValueError):
        until = email.utils.parsedate_to_datetime(text).timestamp()
        with contextlib.suppress(KeyError, ValueError):
            now = email.utils.parsedate_to_datetime(headers["date"]).timestamp()
        return _seconds(until - now)
    return None


def _seconds(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError("not a number of seconds")
    return max(0.0, number)


def _word(value: object) -> str:
    """Return an error code that is safe to print: one word, or an empty string."""
    return redacted(value) if isinstance(value, str) and re.fullmatch(r"[\w.\[\]-]{1,64}", value) else ""


def _chain(error: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain
