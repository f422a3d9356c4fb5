"""A connection to an endpoint with OpenAI's protocol: a client for each event loop, the key, and readable errors.

It sends a request once. An error never carries the request, the response, or the library's exception, since all of them
contain the key or the prompt.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import ssl
import time
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar
from urllib.parse import urlsplit

from indexmill.errors import ConfigurationError, IndexmillError
from indexmill.extras import not_installed
from indexmill.models.chat import LARGEST_ANSWER
from indexmill.models.http_failures import LLM_SETTINGS, HttpFailure, SettingNames, lost_connection
from indexmill.models.http_logs import silence
from indexmill.models.llm_errors import LlmRejected, LlmUnreachable
from indexmill.models.secrets import KeySource

if TYPE_CHECKING:
    import httpx2
    import openai

    _Open = tuple[openai.AsyncOpenAI, AsyncGenerator[openai.AsyncOpenAI, None]]

OPENAI = "https://api.openai.com/v1"

_NO_KEY = "none"
"""The placeholder for the key that the library requires; the real key is added to each request when it is sent."""

_CONNECT_SECONDS = 10.0
_IDLE_SECONDS = 4.0
"""Connections that were idle for longer are not reused: some servers, such as vLLM, close them after five seconds."""

_T = TypeVar("_T")


class EndpointOptions(Protocol):
    """The settings of an endpoint, as in the sections `llm` and `embed` of the configuration."""

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
    def timeout_seconds(self) -> float: ...


def endpoint_of(options: EndpointOptions, section: str) -> tuple[str, str, KeySource]:
    """Return the model, base URL and key source in a section's settings, without reading a key."""
    if options.backend != "openai" or options.model is None:
        raise ConfigurationError(f"{section}.backend is not openai, or {section}.model is missing: no endpoint to call")
    url = urlsplit(options.base_url or OPENAI)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigurationError(f"{section}.base_url: expected http:// or https:// and a host")
    chosen = (options.api_key_file, options.token_provider) != (None, None)
    required = options.base_url is None or chosen or options.api_key_env != KeySource.env
    keys = KeySource(
        options.api_key_env, options.api_key_file, options.token_provider, required, f"{section}.api_key_env"
    )
    return options.model, options.base_url or OPENAI, keys


@dataclass(frozen=True, repr=False, kw_only=True)
class OpenAiConnection:
    """A model behind an endpoint with OpenAI's protocol. Picklable; a copy opens its own connections.

    Connections belong to the event loop of the request and are closed when ``asyncio.run`` ends that loop.
    timeout_seconds: the limit for a whole call.
    """

    model: str = field(kw_only=False)
    base_url: str = field(default=OPENAI, kw_only=False)
    keys: KeySource = field(default_factory=KeySource, kw_only=False)
    ca_file: Path | None = None
    proxy: str | None = None
    timeout_seconds: float = 60.0
    _clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Open] = field(
        default_factory=weakref.WeakKeyDictionary, init=False, compare=False
    )
    """The client of each event loop, and the generator that closes it."""

    names: ClassVar[SettingNames] = LLM_SETTINGS
    what: ClassVar[str] = "a language model"
    instead: ClassVar[str] = "set llm.backend to extractive"
    """The advice if the package openai is not installed."""
    largest: ClassVar[int] = LARGEST_ANSWER
    """The maximum size of a decompressed response in bytes."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r} at {self.where})"

    def __reduce__(self) -> tuple[Any, ...]:
        settings = {setting.name: getattr(self, setting.name) for setting in fields(self) if setting.init}
        return functools.partial(type(self), **settings), ()

    @property
    def where(self) -> str:
        """The endpoint's host, without user and password."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    def check(self) -> None:
        """Check the model's prerequisites on this machine, without sending a request.

        Raises ModelUnavailable if the package openai is not installed, LlmForbidden if the key is missing,
        ConfigurationError if the certificates or the token provider are missing.
        """
        if importlib.util.find_spec("openai") is None:
            raise not_installed(self.what, "openai", instead=self.instead)
        if self.ca_file is not None:
            self._trusted()
        self.keys.check()

    def cautions(self) -> list[str]:
        """Return warnings about missing prerequisites and risks to the key, before the model is called."""
        missing = []
        try:
            self.check()
        except IndexmillError as error:
            missing.append(f"{error}; until then only questions whose answers are in the ledger can be answered")
        return missing + self.keys.cautions(self.base_url, self.names.url)

    async def ready(self) -> None:
        """Load the library and open a client without connecting; takes a second or more. Raises as ``check`` does."""
        await self._client()

    async def call(self, send: Callable[[openai.AsyncOpenAI], Awaitable[_T]]) -> _T:
        """Return the result of `send` within the timeout; raises LlmError instead of the library's errors."""
        result = await self._attempt(send)
        del send
        if isinstance(result, HttpFailure):
            result = result.error(self.where, self.model, self.names)
        if isinstance(result, IndexmillError):
            raise result
        return result

    async def _attempt(
        self, send: Callable[[openai.AsyncOpenAI], Awaitable[_T]], seconds: float | None = None
    ) -> _T | HttpFailure | IndexmillError:
        """Return the result, or the error as a value: an exception raised here would carry the prompt.

        seconds: the limit of the whole call, by default the timeout.
        """
        openai = self._openai()
        import httpx2

        try:
            async with asyncio.timeout(seconds or self.timeout_seconds):
                return await send(await self._client())
        except openai.APIStatusError as error:
            response = error.response
            return HttpFailure.of(response.status_code, response.headers, response.content, time.time())
        except openai.APIConnectionError as error:
            if isinstance(error, openai.APITimeoutError) and "Connect" not in type(error.__cause__).__name__:
                return self._late()
            return lost_connection(error.__cause__, self.where, self.names)
        except (TimeoutError, httpx2.TimeoutException):
            return self._late()
        except httpx2.TransportError as error:  # while an answer is streamed
            return lost_connection(error, self.where, self.names)
        except IndexmillError as error:  # about the key, or an endless answer
            return error.with_traceback(None)
        except (openai.OpenAIError, httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            return LlmRejected(f"{self.where}: the request cannot be sent ({type(error).__name__})")

    def _late(self) -> LlmUnreachable:
        error = LlmUnreachable(
            f"{self.where}: no answer within {self.timeout_seconds:g} s ({self.names.timeout})",
            retry=True,
            billed="maybe",
        )
        error.overloaded = True
        return error

    async def _client(self) -> openai.AsyncOpenAI:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            closing = self._opened()
            self._clients[loop] = await anext(closing), closing
        return self._clients[loop][0]

    async def _opened(self) -> AsyncGenerator[openai.AsyncOpenAI, None]:
        """Yield a client that is closed when the loop ends, since ``asyncio.run`` closes open generators."""
        openai = self._openai()
        import httpx2

        from indexmill.models.bounded_http import BoundedClient

        try:
            http = BoundedClient(
                largest=self.largest,
                verify=self._trusted(),
                proxy=self.proxy,
                timeout=httpx2.Timeout(self.timeout_seconds, connect=min(_CONNECT_SECONDS, self.timeout_seconds)),
                limits=httpx2.Limits(
                    max_connections=None, max_keepalive_connections=None, keepalive_expiry=_IDLE_SECONDS
                ),
                event_hooks={"request": [self._authorise]},
            )
        except ImportError:
            user = f"{self.names.proxy}, or ALL_PROXY in the environment, a SOCKS proxy,"
            raise not_installed(user, "socksio") from None
        silence()
        try:
            async with openai.AsyncOpenAI(
                api_key=_NO_KEY, base_url=self.base_url, max_retries=0, http_client=http
            ) as client:
                yield client
        finally:
            self._clients.pop(asyncio.get_running_loop(), None)

    async def _authorise(self, request: httpx2.Request) -> None:
        """Add the current key to a request before it is sent."""
        key = await self.keys.key()
        if key is not None:
            request.headers["Authorization"] = f"Bearer {key}"
        elif request.headers.get("Authorization") == f"Bearer {_NO_KEY}":  # not a user and password from base_url
            del request.headers["Authorization"]

    def _trusted(self) -> ssl.SSLContext:
        """Return a context that trusts the current certificates in `ca_file`, or the system's."""
        if self.ca_file is None:
            return _system_certificates()
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            why = "contains no certificates" if isinstance(error, ssl.SSLError) else error.strerror
            raise ConfigurationError(
                f"{self.names.certificates}: {self.ca_file} {why}: expected certificates in PEM"
            ) from None

    def _openai(self) -> Any:
        try:
            import openai
        except ImportError as error:
            raise not_installed(self.what, "openai", error, self.instead) from None
        return openai


@functools.cache
def _system_certificates() -> ssl.SSLContext:
    """Return a context that trusts the system's certificates; cached, since loading takes longer than a request."""
    import httpx2

    return httpx2.create_ssl_context()
