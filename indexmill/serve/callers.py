"""Identifying callers by bearer tokens, which are stored as digests in a file.

    {"tokens": [{"name": "search-team", "sha256": "9f86...", "principals": ["staff"]}]}

A token has 256 random bits, so its plain SHA-256 reveals nothing. The file is reloaded when it changes: remove a record
to revoke its token.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from indexmill.errors import BadInput, ConfigurationError
from indexmill.retrieve.rights import principals_of
from indexmill.serve.rejections import Unauthorised
from indexmill.store.whole_files import write_whole

_LOG = logging.getLogger(__name__)
_CHECK_INTERVAL = 2.0
"""The number of seconds between two checks of the file."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")]


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller. principals: the groups to read as (``indexmill.retrieve.rights``); None for no group."""

    name: str
    principals: tuple[str, ...] | None = None


ANONYMOUS = Caller("anonymous")
"""The caller of a server without tokens."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    principals: list[Annotated[str, Field(min_length=1)]] | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: list[_Record] = []


class CallerTokens:
    """The tokens in a file. An invalid file raises ConfigurationError at startup; later it is only logged."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._stamp, self._records = _stamp(path), _read(path).tokens
        self._checked_at = clock()
        if not self._records:
            raise ConfigurationError(
                f"{path}: contains no token; add one with `indexmill serve --tokens FILE --new-token`"
            )

    def caller(self, authorization: str | None) -> Caller:
        """Identify the caller of an ``Authorization`` header, in constant time; raises Unauthorised."""
        self._reload()
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorised("this server needs a token: send the header `Authorization: Bearer TOKEN`")
        digest = hashlib.sha256(token.strip().encode("utf-8", "replace")).hexdigest()
        known_record = None
        for record in self._records:
            if hmac.compare_digest(record.sha256, digest):
                known_record = record
        if known_record is None:
            raise Unauthorised("unknown token; ask the operator of this server for one")
        return Caller(known_record.name, None if known_record.principals is None else tuple(known_record.principals))

    def _reload(self) -> None:
        if self._clock() - self._checked_at < _CHECK_INTERVAL:
            return
        self._checked_at = self._clock()
        try:
            stamp = _stamp(self._path)
            if stamp == self._stamp:
                return
            self._records, self._stamp = _read(self._path).tokens, stamp
        except ConfigurationError as error:
            _LOG.warning("the previous tokens stay valid: %s", error)
        else:
            _LOG.info("%s: %d tokens", self._path, len(self._records))


def add_token(path: Path, name: str, principals: Sequence[str] = ()) -> str:
    """Create a token, add its digest to a file, which may be missing, and return the token, which is not stored.

    principals: see ``Caller``.

    Raises BadInput for a malformed or existing name, ConfigurationError if the file cannot be used.
    """
    records = _read(path).tokens if path.exists() else []
    if any(record.name == name for record in records):
        raise BadInput(f"{path}: has a token named {name!r}; remove its record first, or choose another name")
    token = f"imt_{secrets.token_urlsafe(32)}"
    principals_of(principals)  # raises for invalid principals
    try:
        digest = hashlib.sha256(token.encode()).hexdigest()
        record = _Record(name=name, sha256=digest, principals=list(dict.fromkeys(principals)) or None)
    except ValidationError:
        raise BadInput(f"{name!r} is not a valid token name; expected at most 64 letters, digits and . _ @ -") from None
    _write(path, _File(tokens=[*records, record]).model_dump_json(indent=2, exclude_none=True) + "\n")
    return token


def _read(path: Path) -> _File:
    try:
        return _File.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ConfigurationError(
            f'{path}: {where}: {first["msg"]}; expected {{"tokens": [{{"name": ..., "sha256": ...}}]}}'
        ) from None


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    return status.st_mtime_ns, status.st_size, status.st_ino


def _write(path: Path, text: str) -> None:
    """Replace the file atomically; a new file is readable only by its owner."""
    try:
        write_whole(path, [text], path.stat().st_mode & 0o777 if path.exists() else 0o600)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written: {error.strerror}") from error
