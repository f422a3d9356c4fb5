"""Sources of a language model's key, and the redaction of keys from all output.

A key is read again for each use and remembered only for ``redacted``, so that a renewed file or a short-lived token
takes effect immediately.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import inspect
import os
import re
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from indexmill.errors import ConfigurationError
from indexmill.forks import Lock
from indexmill.models.llm_errors import LlmForbidden

RERANK_KEY_ENV = "INDEXMILL_RERANK_API_KEY"
"""The environment variable with the key for a reranker endpoint, if the endpoint requires a key."""

HIDDEN = "***"

_SHORTEST = 8
"""The minimum length of a secret key: endpoints that need no key get words such as `none`."""

_seen: set[str] = set()
"""The keys that this process has read."""

_calling = Lock()
"""Serialises calls to providers, whose token caches need not be thread-safe."""

_SHAPES = (
    re.compile(r"(?<=://)[^\s/@]+(?=@)"),  # user and password in a URL
    re.compile(r"(?i)(?<=bearer )[^\s'\",]+"),
    re.compile(r"(?i)(?<=[?&])((?:[\w-]*(?:key|token|secret|password|signature)|sig)=)[^\s&#'\"]+"),
    re.compile(r"\b(?:sk|pk|rk)-[\w-]{12,}"),
)


def redacted(text: str) -> str:
    """Hide the keys that this process has read, and strings that look like secrets, in a text."""
    for key in sorted(_seen, key=len, reverse=True):
        text = text.replace(key, HIDDEN).replace(quote(key, safe=""), HIDDEN)
    for shape in _SHAPES:
        text = shape.sub(lambda match: (match[1] if match.re.groups else "") + HIDDEN, text)
    return text


_OPTION = re.compile(r"(?i)(^|[_-])(api_?)?(key|token|secret|password|credentials?)$")


def without_secrets(settings: Any) -> Any:
    """Return settings in which every string is `redacted`, and plug-in options with secret-like names are hidden."""
    if isinstance(settings, dict):
        hidden = {"options": _without_secret_options(settings["options"])} if "options" in settings else {}
        return {name: without_secrets(below) for name, below in {**settings, **hidden}.items()}
    if isinstance(settings, list):
        return [without_secrets(below) for below in settings]
    return redacted(settings) if isinstance(settings, str) else settings


def _without_secret_options(options: Any) -> Any:
    if isinstance(options, dict):
        return {
            name: HIDDEN if _OPTION.search(str(name)) and isinstance(below, str) else _without_secret_options(below)
            for name, below in options.items()
        }
    return options


@dataclass(frozen=True)
class KeySource:
    """The source of a key: a token provider, else a file, else an environment variable.

    provider: ``module:function``, a function without arguments that returns a key or a coroutine that returns a key.
    required: True if a missing environment variable is an error; a self-hosted endpoint may need no key. setting: the
    setting that names the variable. service: the service that the key is for.
    """

    env: str = "OPENAI_API_KEY"
    file: Path | None = None
    provider: str | None = None
    required: bool = True
    setting: str = "llm.api_key_env"
    service: str = "the language model"

    @property
    def description(self) -> str:
        """A description of the source, for messages."""
        if self.provider is not None:
            return f"the token provider {self.provider} ({self._beside('token_provider')})"
        if self.file is not None:
            return f"the file {self.file} ({self._beside('api_key_file')})"
        return f"the environment variable {_shown(self.env)} ({self.setting})"

    def check(self) -> bool:
        """Return True if there is a key or a provider, without calling the provider.

        Raises LlmForbidden if a required key is missing, ConfigurationError if the provider cannot be imported.
        """
        if self.provider is not None:
            self._function(self.provider)
            return True
        return self._read() is not None

    async def key(self) -> str | None:
        """Return the current key; None if there is no key and none is required. Raises as ``check`` does."""
        key = self._read() if self.provider is None else await self._provided(self.provider)
        return None if key is None else key.text

    def read(self) -> str | None:
        """Return the current key, as ``key`` does, without calling a provider. Raises as ``check`` does."""
        key = self._read()
        return None if key is None else key.text

    def cautions(self, base_url: str, setting: str = "llm.base_url") -> list[str]:
        """Return warnings about a key file that others can read, or plain HTTP. setting: the URL setting's name."""
        warnings = []
        if self.provider is None and self.file is not None:
            try:
                mode = self.file.stat().st_mode
            except OSError:
                mode = 0
            if mode & (stat.S_IRGRP | stat.S_IROTH):
                warnings.append(f"{self.description} can be read by other users of this machine: chmod 600 {self.file}")
        url = urlsplit(base_url)
        if url.scheme == "http" and not _near(url.hostname or ""):
            warnings.append(f"the key and all texts go to {url.hostname} without encryption: use https in {setting}")
        return warnings

    def _read(self) -> _HiddenKey | None:
        if self.file is not None:
            try:
                data = self.file.read_bytes()
            except OSError as error:
                raise LlmForbidden(f"{self.description} cannot be read: {error.strerror}") from None
            return self._usable(_HiddenKey(data.decode("utf-8", "replace")))
        key = _HiddenKey(os.environ.get(self.env, ""))
        if key.text:
            return self._usable(key)
        if self.required:
            raise LlmForbidden(
                f"no key for {self.service}: {self.description} is not set; set it, or give "
                f"{self._beside('api_key_file')} or {self._beside('token_provider')}"
            )
        return None

    async def _provided(self, provider: str) -> _HiddenKey:
        key = await _called(self._function(provider))
        if isinstance(key, str):
            raise LlmForbidden(f"{self.description} {key}: expected a function without arguments that returns the key")
        return self._usable(key)

    def _function(self, provider: str) -> Callable[[], Any]:
        module, _, name = provider.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(
                f"{self._beside('token_provider')}: {provider} cannot be imported ({type(error).__name__}): expected "
                "the module:function of an installed package"
            ) from None
        if not callable(function):
            raise ConfigurationError(f"{self._beside('token_provider')}: {provider} is not a function")
        return function  # type: ignore[no-any-return]

    def _beside(self, name: str) -> str:
        """Return the full name of a different setting in the same section."""
        return f"{self.setting.rpartition('.')[0] or 'llm'}.{name}"

    def _usable(self, key: _HiddenKey) -> _HiddenKey:
        """Remember a key for redaction and return it; raises LlmForbidden if it cannot be sent in a header."""
        if not re.fullmatch(r"[!-~]+", key.text):
            what = "contains more than a key: expected one word in ASCII" if key.text else "is empty"
            raise LlmForbidden(f"{self.description} {what}")
        if len(key.text) >= _SHORTEST:
            _seen.add(key.text)
        return key


class _HiddenKey:
    """A key, stripped of white space. Its ``repr`` hides it in tracebacks that show local variables."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text.strip()

    def __repr__(self) -> str:
        return HIDDEN


async def _called(function: Callable[[], Any]) -> _HiddenKey | str:
    """Call a provider; return its key, or describe its failure. A hanging provider does not delay exit."""
    import asyncio

    future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def call_provider() -> None:
        with _calling:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)

    threading.Thread(target=call_provider, name="token-provider", daemon=True).start()
    try:
        returned = await asyncio.wrap_future(future)
        if inspect.isawaitable(returned):
            returned = await returned
    except Exception as error:
        return f"raised {type(error).__name__}"
    return _HiddenKey(returned) if isinstance(returned, str) else f"returned {type(returned).__name__}, not a string"


def _shown(env: str) -> str:
    """Return the variable's name, hidden if it may be the key itself, entered there by mistake."""
    return env if re.fullmatch(r"[A-Z_][A-Z0-9_]{0,63}", env) else HIDDEN


def _near(host: str) -> bool:
    return host == "localhost" or host == "::1" or host.startswith("127.")
