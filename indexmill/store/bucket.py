"""Objects below a prefix of an object store: S3 and services that speak its protocol, Google Cloud, and Azure.

The library obstore (the extra ``cloud``) talks to the service. Its own retries are switched off: after a lost response
it would report a create that succeeded as "exists already". This module retries instead, and reads the object back to
decide whether a create succeeded.

Credentials and endpoints come from the sources that each cloud's own tools use: the environment, a profile, the
instance, or a workload identity. A URL cannot contain them.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from indexmill.errors import ConfigurationError, CorruptBlob, NotFound, StoreError, StoreNotWritable
from indexmill.extras import not_installed
from indexmill.forks import Lock
from indexmill.store.byte_rate import UNLIMITED
from indexmill.store.layout import check_name
from indexmill.text.counted import byte_size

if TYPE_CHECKING:
    from obstore.store import ClientConfig

T = TypeVar("T")

SCHEMES = {"s3": "S3", "gs": "Google Cloud Storage", "az": "Azure Blob Storage"}
"""The URL scheme of each service."""

IN_PROCESS = "memory"
"""The scheme of object stores in the memory of this process, which replace a service in tests.

Each URL is a separate store. Other processes do not see it, and it ends with this process, so settings reject it.
"""

_PATIENCE = 90.0
"""The number of seconds for which a failing request is retried."""
_FIRST_PATIENCE = 15.0
"""As `_PATIENCE`, until the service first responds: until then its name or the settings may be wrong."""
_FIRST_WAIT = 0.1
"""The maximum wait before the second attempt, in seconds; it doubles before each further attempt."""
_SLOWEST = 8.0
"""The maximum wait between two attempts, in seconds."""
_PIECE = 8 << 20
"""The size of one ranged read or one part of an upload, in bytes."""
_PART_ATTEMPTS = 10
"""How often a failed part of an upload is retried before the upload restarts."""
_SLICE = 1 << 18
"""The number of bytes sent at once under a rate limit."""
_THREADS = 4
_PAGE = 1000
"""The number of names in one page of a listing; services bill by page."""
_MARK = "writer"
"""The key of an object's metadata that identifies the call that created it."""
_QUERY = re.compile(r"(https?://[^\s?]+)\?\S+")
_REFUSED = re.compile(r"non-2xx status code: 40[13]\b")
"""obstore's message for a listing that is not permitted; for single objects it raises its own exceptions."""

_clients: dict[tuple[str, bool], Any] = {}
_clients_lock = Lock()
_reachable: set[str] = set()
"""The URLs whose service has responded to this process."""
_process: int | None = None
"""The process in which obstore was first used; its threads do not exist in a forked child."""


@dataclass(frozen=True, slots=True)
class BucketObject:
    """An object as the service lists it.

    name: the name below the prefix. modified: the time of the last write in whole seconds since the epoch; on some
    services listings are more precise than single responses. etag: the ETag without quotes; empty if the service has
    none. version: the version id; empty if the listing has no versions.
    """

    name: str
    bytes: int
    modified: float
    etag: str
    version: str


@dataclass(slots=True)
class Requests:
    """The successful requests of a bucket in this process, by kind, and the bytes transferred."""

    reads: int = 0
    writes: int = 0
    lists: int = 0
    deletes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


def is_bucket(where: str | os.PathLike[str]) -> bool:
    """Return True for a URL of an object store, or of any scheme other than ``file:``; False for a path."""
    return "://" in (text := os.fspath(where)) and not text.startswith("file:")


def place_of(where: str | os.PathLike[str]) -> Path | str:
    """Return a path as a Path, and the URL of an object store as a string."""
    return os.fspath(where) if is_bucket(where) else Path(where)


def bucket_url(url: str) -> str:
    """Normalise a URL to the form `s3://bucket/prefix`; raises ValueError if it cannot be the URL of a store."""
    split = urlsplit(url)
    if split.scheme not in (*SCHEMES, IN_PROCESS):
        expected = ", ".join(f"{scheme}:// ({service})" for scheme, service in SCHEMES.items())
        raise ValueError(f"{split.scheme}:// is not a scheme of a store: expected a folder, or {expected}")
    if split.query or split.fragment or "@" in split.netloc:
        raise ValueError(
            f"the URL of the store in {split.scheme}://{split.hostname or ''} contains more than a bucket and a "
            "prefix: credentials and options come from the environment"
        )
    if not split.netloc:
        raise ValueError(f"{url} names no bucket: expected {split.scheme}://BUCKET/PREFIX")
    prefix = split.path.strip("/")
    return f"{split.scheme}://{split.netloc}" + (f"/{check_name(prefix)}" if prefix else "")


class Bucket:
    """The objects below a URL. Safe to use from many threads; a copy in another process opens its own client.

    Every method retries a failing request for some time, then raises StoreError.
    """

    def __init__(self, url: str) -> None:
        """Check the URL; raises ConfigurationError if it cannot be the URL of a store."""
        try:
            self.url = bucket_url(url)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        self.requests = Requests()
        self.pace = UNLIMITED
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[Bucket], tuple[str]]:
        return Bucket, (self.url,)

    def path(self, name: str) -> str:
        """Return the URL of an object, as messages show it."""
        return f"{self.url}/{name}"

    def read(self, name: str, most: int | None = None) -> bytes:
        """Read an object; raises NotFound if there is none, CorruptBlob if it has more than ``most`` bytes."""

        def attempt() -> bytes:
            response = self._client().get(name)
            self._count(reads=1)
            if most is not None and response.meta["size"] > most:
                raise CorruptBlob(
                    f"{self.path(name)} is {byte_size(response.meta['size'])}; the maximum is {byte_size(most)}: "
                    "restore it from a copy"
                )
            data = bytes(response.bytes())
            self._count(bytes_read=len(data))
            return data

        return self.call(f"{self.path(check_name(name))} cannot be read", attempt)

    def stat(self, name: str) -> BucketObject | None:
        """Return the object with a plain name; None if there is none."""
        return self.find(check_name(name))

    def entries(self, prefix: str) -> list[BucketObject]:
        """List the objects whose names begin with a prefix, sorted by name."""
        folder = prefix.rpartition("/")[0]
        if folder:
            check_name(folder)

        def attempt() -> list[BucketObject]:
            entries = [
                _object(meta)
                for page in self._client().list(f"{folder}/" if folder else None, chunk_size=_PAGE)
                for meta in page
            ]
            self._count(lists=len(entries) // _PAGE + 1)
            return entries

        listed = self.call(f"{self.path(folder)} cannot be listed", attempt)
        return sorted((entry for entry in listed if entry.name.startswith(prefix)), key=lambda entry: entry.name)

    def pages(self, folder: str) -> Iterator[list[BucketObject]]:
        """Yield the objects below a folder page by page, in the service's order. The folder "" is the URL itself.

        The folder's name need not be plain. A failed page is retried after the last listed object, so that a long
        listing survives lost responses. Raises StoreError for names that obstore cannot represent (such as `//`, `..`).
        """
        where = f"{self.path(folder)} cannot be listed"
        last: str | None = None
        stream: Any = None

        def attempt() -> list[BucketObject] | None:
            nonlocal stream
            if stream is None:
                stream = self._client().list(f"{folder}/" if folder else None, offset=last, chunk_size=_PAGE)
            try:
                page = next(stream, None)
            except BaseException:
                stream = None
                raise
            self._count(lists=1)
            return None if page is None else [_object(meta) for meta in page]

        while (page := self.call(where, attempt)) is not None:
            yield page
            last = page[-1].name if page else last

    def find(self, key: str) -> BucketObject | None:
        """Return the current object with a name, which need not be plain; None if there is none."""

        def attempt() -> BucketObject:
            meta = self._client().head(key)
            self._count(reads=1)
            return _object(meta)

        try:
            return self.call(f"{self.path(key)} cannot be read", attempt)
        except NotFound:
            return None

    def fetch_as(self, seen: BucketObject, descriptor: int) -> bool:
        """Write the bytes of an object to an open file; False if the object differs from `seen`.

        Memory is bounded: a large object is read in ranges, some in parallel, and each response is compared with `seen`
        by ETag, or by size and time if the service has no ETags.
        """

        def piece(start: int) -> bool:
            def attempt() -> bytes | None:
                whole = seen.bytes <= _PIECE
                end = min(start + _PIECE, seen.bytes)
                response = self._client().get(seen.name, options=None if whole else {"range": (start, end)})
                self._count(reads=1)
                now = _object(response.meta)
                same = now.etag == seen.etag if seen.etag else now.modified == seen.modified
                if now.bytes != seen.bytes or not same:
                    return None
                data = bytes(response.bytes())
                self._count(bytes_read=len(data))
                return data

            data = self.call(f"{self.path(seen.name)} cannot be read", attempt)
            _write_at(descriptor, start, data or b"")
            return data is not None

        return all(_in_parallel(piece, range(0, max(seen.bytes, 1), _PIECE)))

    def fetch(self, name: str, descriptor: int, size: int) -> None:
        """Write an object of a known size to an open file, reading ranges in parallel."""

        def piece(start: int) -> None:
            def attempt() -> bytes:
                self.pace.wait(min(_PIECE, size - start))
                data = bytes(self._client().get_range(name, start=start, end=min(start + _PIECE, size)))
                self._count(reads=1, bytes_read=len(data))
                return data

            _write_at(descriptor, start, self.call(f"{self.path(name)} cannot be read", attempt))

        _in_parallel(piece, range(0, size, _PIECE))

    def put(self, name: str, data: bytes | Path) -> None:
        """Write an object, replacing an existing one. A file is uploaded in parts, without loading it into memory."""

        def attempt() -> None:
            size = data.stat().st_size if isinstance(data, Path) else len(data)
            if isinstance(data, Path) and self.pace.limited:
                with data.open("rb") as file:
                    self._send(name, self.pace.pieces(file, _SLICE), size)
            else:
                self._send(name, data, size)
            self._count(writes=1 if size <= _PIECE else -(-size // _PIECE) + 2, bytes_written=size)

        self._write(name, attempt)

    def _send(self, name: str, data: bytes | Path | Iterator[bytes], size: int) -> None:
        parts = size > _PIECE
        self._client(parts).put(name, data, mode="overwrite", use_multipart=parts, chunk_size=_PIECE)

    def create(self, name: str, data: bytes) -> bool:
        """Create an object and return True, or return False if the name is already taken.

        The object's metadata identifies this call, since an attempt whose response was lost may have created it.
        """
        mark = secrets.token_hex(16)

        def attempt() -> bool:
            from obstore.exceptions import AlreadyExistsError

            try:
                self._client().put(name, data, mode="create", use_multipart=False, attributes={_MARK: mark})
            except AlreadyExistsError:
                # The cause may be an earlier attempt, or a conflict with a write that then failed.
                try:
                    attributes = self._client().get(name).attributes
                except FileNotFoundError:
                    raise _Again(f"{self.path(name)}: a conflict with another write") from None
                self._count(writes=1, reads=1)
                return bool(attributes.get(_MARK) == mark)
            self._count(writes=1, bytes_written=len(data))
            return True

        return self._write(name, attempt)

    def _write(self, name: str, attempt: Callable[[], T]) -> T:
        try:
            return self.call(f"{self.path(check_name(name))} cannot be written", attempt)
        except NotFound as error:
            raise StoreNotWritable(f"{self.url}: there is no such bucket; create it first") from error

    def delete(self, name: str) -> None:
        """Remove an object; does nothing if it does not exist."""

        def attempt() -> None:
            with contextlib.suppress(FileNotFoundError):
                self._client().delete(name)
            self._count(deletes=1)

        self.call(f"{self.path(check_name(name))} cannot be removed", attempt)

    def call(self, failure: str, attempt: Callable[[], T]) -> T:
        """Return the result of a request, retried while the service fails; error messages begin with `failure`."""
        try:
            import tenacity
            from obstore.exceptions import BaseError, GenericError, PermissionDeniedError, UnauthenticatedError
        except ImportError as error:
            service = SCHEMES.get(urlsplit(self.url).scheme, IN_PROCESS)
            raise not_installed(f"a store in {service}", "obstore", error) from error
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception(
                lambda error: isinstance(error, (GenericError, _Again)) and _may_pass(error)
            ),
            wait=tenacity.wait_random_exponential(multiplier=_FIRST_WAIT, max=_SLOWEST),
            stop=tenacity.stop_after_delay(_PATIENCE if self.url in _reachable else _FIRST_PATIENCE),
            reraise=True,
        )
        try:
            result = attempts(attempt)
            _reachable.add(self.url)
            return result
        except FileNotFoundError as error:
            _reachable.add(self.url)
            raise NotFound(f"{failure}: it does not exist") from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise StoreNotWritable(
                f"{failure}: {_message(error)}; check the credentials in the environment and their permissions"
            ) from error
        except (BaseError, _Again) as error:
            if _REFUSED.search(str(error)):
                raise StoreNotWritable(
                    f"{failure}: {_message(error)}; check the credentials in the environment and their permissions"
                ) from error
            raise StoreError(f"{failure}: {_message(error)}") from error

    def _count(self, **amounts: int) -> None:
        with self._lock:
            for kind, amount in amounts.items():
                setattr(self.requests, kind, getattr(self.requests, kind) + amount)

    def _client(self, parts: bool = False) -> Any:
        """Return this process's client. parts: True for the client that retries each failed part of an upload."""
        parts = parts and urlsplit(self.url).scheme != IN_PROCESS
        global _process
        with _clients_lock:
            if _process not in (None, os.getpid()):
                raise StoreError(
                    f"{self.url} cannot be used here: this process was forked from one that had used an object store, "
                    "whose threads a fork does not copy; open the store after the fork, or start processes with "
                    "multiprocessing's method `spawn`"
                )
            client = _clients.get((self.url, parts))
            if client is None:
                client = _clients[self.url, parts] = _open(self.url, _PART_ATTEMPTS if parts else 0)
                _process = os.getpid()
        return client


def _may_pass(error: Exception) -> bool:
    """Return True if a retry may succeed: the bucket is not missing, and the request is not forbidden."""
    message = str(error)
    return "NoSuchBucket" not in message and "ContainerNotFound" not in message and not _REFUSED.search(message)


def _in_parallel(piece: Callable[[int], T], starts: range) -> list[T]:
    """Read the pieces that start at these offsets, several at a time."""
    if len(starts) <= 1:
        return [piece(start) for start in starts]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(piece, starts))


def _write_at(descriptor: int, start: int, data: bytes) -> None:
    while data:
        written = os.pwrite(descriptor, data, start)
        start, data = start + written, data[written:]


class _Again(Exception):
    """The request may succeed if it is retried."""


def _object(meta: Any) -> BucketObject:
    etag = (meta["e_tag"] or "").removeprefix("W/").strip('"')  # some services quote it in some responses only
    modified = float(int(meta["last_modified"].timestamp()))
    return BucketObject(meta["path"], meta["size"], modified, etag, meta["version"] or "")


def _open(url: str, retries: int) -> Any:
    from obstore.exceptions import BaseError
    from obstore.store import MemoryStore, from_url

    if urlsplit(url).scheme == IN_PROCESS:
        return MemoryStore()
    options: ClientConfig = {
        "connect_timeout": "10s",
        "read_timeout": "30s",
        "timeout": "300s",
        "allow_http": _plain_http_is_allowed(),
    }
    try:
        return from_url(url, client_options=options, retry_config={"max_retries": retries})
    except BaseError as error:
        raise ConfigurationError(f"{url} cannot be opened: {_message(error)}") from error


def _plain_http_is_allowed() -> bool:
    """Return True if the environment allows endpoints without TLS, or names only endpoints on this machine."""
    if any(os.environ.get(name, "").lower() in ("1", "true") for name in ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP")):
        return True
    endpoints = [value for name, value in os.environ.items() if "ENDPOINT" in name and value.startswith("http://")]
    return bool(endpoints) and all(urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost") for url in endpoints)


def _message(error: Exception) -> str:
    """Return the first paragraph of a library's message, without the queries of URLs, which may contain signatures."""
    return " ".join(_QUERY.sub(r"\1", str(error).partition("\n\n")[0]).split())
