"""The back-end for endpoints that speak OpenAI's protocol: OpenAI's own, vLLM, Ollama, llama.cpp, gateways.

It sends a request once: retries, quotas and the ledger stand above it. An error never carries the request, the
response, or the library's own exception, all of which hold the key and the prompt.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import json
import ssl
import time
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

from indexmill.errors import ConfigurationError, IndexmillError
from indexmill.extras import not_installed
from indexmill.models.chat import Limit, Shape, Structured, chat_body, completion_of, input_bound, shapes
from indexmill.models.http_failures import Failure, lost_connection
from indexmill.models.http_logs import silence
from indexmill.models.llm import Completion, Request
from indexmill.models.llm_errors import LlmError, LlmForbidden, LlmRejected, LlmUnreachable
from indexmill.models.model_call import model_call
from indexmill.models.secrets import KeySource
from indexmill.store.canonical import canonical_json, digest_of

if TYPE_CHECKING:
    import httpx2
    import openai

    _Open = tuple[openai.AsyncOpenAI, AsyncGenerator[openai.AsyncOpenAI, None]]

__all__ = ["LlmOptions", "OpenAiLlm", "open_llm"]

_NO_KEY = "none"
"""The placeholder for the key that the library requires; the real key is added to each request when it is sent."""

OPENAI = "https://api.openai.com/v1"

_EXTRACTIVE = "set llm.backend to extractive"

_NEW_LIMIT = ("api.openai.com", ".openai.azure.com")
"""Hosts whose newer models do not accept `max_tokens`."""

_T = TypeVar("_T")

_CONNECT_SECONDS = 10.0
_IDLE_SECONDS = 4.0
"""Connections idle for longer are not reused: some servers, such as vLLM's, close them after five seconds."""

_taken: dict[tuple[str, str, str], Shape] = {}
"""The shape that last worked in this process, by endpoint, model and schema."""


class LlmOptions(Protocol):
    """The settings of a language model, as in the section `llm` of the configuration."""

    @property
    def backend(self) -> str: ...
    @property
    def model(self) -> str | None: ...
    @property
    def base_url(self) -> str | None: ...
    @property
    def api_key_env(self) -> str: ...
    @property
    def api_key_file(self) -> Path | None: ...
    @property
    def token_provider(self) -> str | None: ...
    @property
    def ca_file(self) -> Path | None: ...
    @property
    def proxy(self) -> str | None: ...
    @property
    def structured(self) -> Structured: ...
    @property
    def temperature(self) -> float | None: ...
    @property
    def timeout_seconds(self) -> float: ...


def open_llm(options: LlmOptions) -> OpenAiLlm:
    """The language model of some settings.

    Nothing is looked up before the first request: if the ledger has all answers, neither the package openai nor a key
    is needed. ``check`` looks both up at once. Raises ConfigurationError for settings that cannot work.
    """
    if options.backend != "openai" or options.model is None:
        raise ConfigurationError("llm.backend is not openai, or llm.model is missing: there is no model to ask")
    url = urlsplit(options.base_url or OPENAI)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigurationError("llm.base_url: expected http:// or https:// and a host")
    chosen = (options.api_key_file, options.token_provider) != (None, None)
    required = options.base_url is None or chosen or options.api_key_env != KeySource.env
    return OpenAiLlm(
        options.model,
        options.base_url or OPENAI,
        KeySource(options.api_key_env, options.api_key_file, options.token_provider, required),
        options.ca_file,
        options.proxy,
        options.structured,
        options.temperature,
        options.timeout_seconds,
    )


@dataclass(frozen=True, repr=False)
class OpenAiLlm:
    """A model behind an endpoint of OpenAI's protocol. Picklable; a copy opens connections of its own.

    Connections belong to the event loop of the request and are closed when ``asyncio.run`` ends that loop.
    timeout_seconds: the limit of a whole call.
    """

    model: str
    base_url: str = OPENAI
    keys: KeySource = field(default_factory=KeySource)
    ca_file: Path | None = None
    proxy: str | None = None
    structured: Structured = "auto"
    temperature: float | None = 0.0
    timeout_seconds: float = 60.0
    _clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Open] = field(
        default_factory=weakref.WeakKeyDictionary, init=False, compare=False
    )
    """The client of each event loop, and the generator that closes it."""

    def __repr__(self) -> str:
        return f"OpenAiLlm({self.model!r} at {self.where})"

    def __reduce__(self) -> tuple[Any, ...]:
        settings = (self.model, self.base_url, self.keys, self.ca_file, self.proxy, self.structured)
        return type(self), (*settings, self.temperature, self.timeout_seconds)

    @property
    def where(self) -> str:
        """The endpoint's host, without user and password."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """The model and its parameters, without the endpoint and the shape of requests."""
        return {"backend": "openai", "model": self.model, "temperature": self.temperature}

    def check(self) -> None:
        """Check the model's prerequisites on this machine, without a request.

        Raises ModelUnavailable where the package openai is not installed, LlmForbidden where there is no key,
        ConfigurationError where the certificates or the token provider are not there.
        """
        if importlib.util.find_spec("openai") is None:
            raise not_installed("a language model", "openai", instead=_EXTRACTIVE)
        if self.ca_file is not None:
            _trusted(self.ca_file)
        self.keys.check()

    def cautions(self) -> list[str]:
        """Warnings before the model is called: things missing here, and risks of the key's handling."""
        missing = []
        try:
            self.check()
        except IndexmillError as error:
            missing.append(f"{error}; until then nothing can be asked that the ledger does not know")
        return missing + self.keys.cautions(self.base_url)

    def input_tokens(self, request: Request, correction: tuple[str, str] | None = None) -> int:
        """An upper bound of the billed input tokens: the request's bytes, and room for the model's template."""
        return input_bound(request, correction)

    async def ready(self) -> None:
        """Load the library and open a client, which takes a second or more. Does not connect.

        Raises ModelUnavailable and ConfigurationError as ``check`` does.
        """
        await self._client()

    async def complete(self, request: Request, correction: tuple[str, str] | None = None) -> Completion:
        """Send the request once; if the endpoint lacks its response format, send it again with the next one.

        Raises the errors of ``indexmill.models.llm_errors``.
        """
        with model_call("chat", self.model, self.base_url, request.task, request.max_output_tokens) as told:
            answered = await self._completed(request, correction)
            told.ended(answered)
        del request, correction  # a traceback with its locals holds no prompt
        if isinstance(answered, IndexmillError):
            raise answered
        return answered

    def body(self, request: Request, correction: tuple[str, str] | None = None) -> dict[str, Any]:
        """The body that ``complete`` sends: in the shape that the endpoint last accepted, else the strictest."""
        return chat_body(request, self._shapes(request)[0], self.model, self.temperature, correction)

    def completion(self, request: Request, body: Mapping[str, Any]) -> Completion:
        """The answer in the body of a chat completion; raises LlmUnreachable for any other body."""
        return completion_of(request, body, self.model, self.input_tokens(request))

    async def call(self, send: Callable[[openai.AsyncOpenAI], Awaitable[_T]]) -> _T:
        """The result of `send`, within the timeout; raises LlmError in place of the library's errors."""
        came = await self._attempt(send)
        del send
        if isinstance(came, Failure):
            came = came.error(self.where, self.model)
        if isinstance(came, IndexmillError):
            raise came
        return came

    async def _completed(self, request: Request, correction: tuple[str, str] | None) -> Completion | IndexmillError:
        forms = self._shapes(request)
        swapped = False
        while True:
            shape = forms[0]
            body = chat_body(request, shape, self.model, self.temperature, correction)
            came = await self._attempt(functools.partial(_sent, body))
            if not isinstance(came, Failure):
                break
            blamed = came.blames()
            if blamed == "limit" and not swapped:
                forms, swapped = [form.with_other_limit() for form in forms], True
            elif blamed == "form" and shape.form != "text" and forms[1:]:
                forms = forms[1:]
            elif blamed == "form" and shape.form != "text":
                return LlmForbidden(f"{self.where} takes no response format {shape.form}: set llm.structured to auto")
            else:
                return came.error(self.where, self.model)
        if isinstance(came, IndexmillError):
            return came
        answered = self._read(request, correction, came)
        if isinstance(answered, Completion):
            _taken[self._memory(request)] = shape
        return answered

    def _read(self, request: Request, correction: tuple[str, str] | None, content: bytes) -> Completion | LlmError:
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            body = {}
        error = body.get("error")
        if not body.get("choices") and isinstance(error, dict) and isinstance(error.get("code"), int):
            # Some gateways answer 200 and put the status of the model's own endpoint into the body.
            return Failure.of(error["code"], {}, content, time.time()).error(self.where, self.model)
        try:
            return completion_of(request, body, self.model, input_bound(request, correction))
        except LlmError as none:
            return none.with_traceback(None)

    async def _attempt(self, send: Callable[[openai.AsyncOpenAI], Awaitable[_T]]) -> _T | Failure | IndexmillError:
        """The result of `send`, or the error as a value: an exception raised from here would carry the prompt."""
        openai = _openai()
        import httpx2

        try:
            async with asyncio.timeout(self.timeout_seconds):
                return await send(await self._client())
        except openai.APIStatusError as error:
            got = error.response
            return Failure.of(got.status_code, got.headers, got.content, time.time())
        except openai.APIConnectionError as error:
            if isinstance(error, openai.APITimeoutError) and "Connect" not in type(error.__cause__).__name__:
                return self._late()
            return lost_connection(error.__cause__, self.where)
        except TimeoutError:
            return self._late()
        except IndexmillError as error:  # of the key, or of an answer without end
            return error.with_traceback(None)
        except (openai.OpenAIError, httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            return LlmRejected(f"{self.where}: the request cannot be sent ({type(error).__name__})")

    def _late(self) -> LlmUnreachable:
        return LlmUnreachable(
            f"{self.where}: no answer within {self.timeout_seconds:g} s (llm.timeout_seconds)",
            retry=True,
            billed="maybe",
        )

    def _shapes(self, request: Request) -> list[Shape]:
        """The shapes to try, starting with the one that last worked."""
        taken = _taken.get(self._memory(request))
        limit: Limit = "max_completion_tokens" if self.where.endswith(_NEW_LIMIT) else "max_tokens"
        known = list(shapes(self.structured, request.schema, taken.limit if taken else limit))
        return known[known.index(taken) :] if taken in known else known

    def _memory(self, request: Request) -> tuple[str, str, str]:
        return self.base_url, self.model, digest_of(canonical_json(dict(request.schema)))

    async def _client(self) -> openai.AsyncOpenAI:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            closing = self._opened()
            self._clients[loop] = await anext(closing), closing
        return self._clients[loop][0]

    async def _opened(self) -> AsyncGenerator[openai.AsyncOpenAI, None]:
        """A client, closed when the loop ends: ``asyncio.run`` closes the generators that are still open."""
        openai = _openai()
        import httpx2

        from indexmill.models.bounded_http import BoundedClient

        try:
            http = BoundedClient(
                verify=_trusted(self.ca_file),
                proxy=self.proxy,
                timeout=httpx2.Timeout(self.timeout_seconds, connect=min(_CONNECT_SECONDS, self.timeout_seconds)),
                limits=httpx2.Limits(
                    max_connections=None, max_keepalive_connections=None, keepalive_expiry=_IDLE_SECONDS
                ),
                event_hooks={"request": [self._authorise]},
            )
        except ImportError:
            raise not_installed("llm.proxy, or ALL_PROXY in the environment, a SOCKS proxy,", "socksio") from None
        silence()
        try:
            async with openai.AsyncOpenAI(
                api_key=_NO_KEY, base_url=self.base_url, max_retries=0, http_client=http
            ) as client:
                yield client
        finally:
            self._clients.pop(asyncio.get_running_loop(), None)

    async def _authorise(self, request: httpx2.Request) -> None:
        """Add the current key to a request that is about to be sent."""
        key = await self.keys.key()
        if key is not None:
            request.headers["Authorization"] = f"Bearer {key}"
        elif request.headers.get("Authorization") == f"Bearer {_NO_KEY}":  # and not the user in base_url
            del request.headers["Authorization"]


@functools.cache
def _system_certificates() -> ssl.SSLContext:
    """A context that trusts the system's certificates; cached, because loading them takes longer than a request."""
    import httpx2

    return httpx2.create_ssl_context()


def _trusted(ca_file: Path | None) -> ssl.SSLContext:
    """A context that trusts the certificates of a file as it is now, or the system's."""
    if ca_file is None:
        return _system_certificates()
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        why = "holds no certificates" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigurationError(f"llm.ca_file: {ca_file} {why}: expected certificates in PEM") from None


async def _sent(body: Mapping[str, Any], client: openai.AsyncOpenAI) -> bytes:
    response = await client.chat.completions.with_raw_response.create(**body)
    content: bytes = response.http_response.content
    return content


def _openai() -> Any:
    """The package openai."""
    try:
        import openai
    except ImportError as error:
        raise not_installed("a language model", "openai", error, _EXTRACTIVE) from None
    return openai
