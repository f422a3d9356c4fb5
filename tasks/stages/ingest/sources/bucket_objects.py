"""The objects below a prefix of a bucket: S3 and compatible services, Google Cloud, and Azure.

Requests, retries and credentials are those of a store in a bucket (`indexmill.store.bucket`). A listing costs a request
per thousand objects. An object's token consists of its ETag, its size and, if listings contain it, its version. An
object that was replaced since it was listed is not read under that token, as `source_interface.ChangedError` explains.

A name is the key below the prefix, in NFC. The listing excludes hidden names, folder markers, indexmill's own stores,
and all but one of several keys with the same name. A backslash is an ordinary character. obstore cannot represent keys
with control characters or with an empty part or `..`: a source with such a key fails as a whole, since the rest of the
listing's page is unknown.
"""

from __future__ import annotations

import io
import json
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from indexmill.errors import NotFound, StoreError, StoreNotWritable
from indexmill.store.bucket import Bucket, BucketObject
from indexmill.store.layout import STORE_FILE
from schemas.sources import BucketSettings
from tasks.stages.ingest.sources.file_names import Skipped, is_plain, shown, why_hidden
from tasks.stages.ingest.sources.source_interface import ChangedError, FileEntry, SourceError
from tasks.stages.ingest.sources.temporary import filled

_BLOBS = "/blobs/sha256/"
"""A part of the keys in a store of indexes."""
_LARGEST_STORE_FILE = 1_000


class BucketSource:
    """The objects below a URL."""

    def __init__(self, settings: BucketSettings, scratch: Path) -> None:
        """Raises SourceError for an invalid URL. scratch: a folder for temporary copies of the objects being read."""
        self._scratch, url = scratch, settings.url
        split = urlsplit(url)
        self._key = split.path.strip("/")
        if split.query or split.fragment or "@" in split.netloc:
            raise SourceError(
                f"the URL of a bucket in {split.scheme}://{split.hostname or ''} contains more than a bucket and a "
                "prefix: give credentials and options in the environment"
            )
        if not split.netloc or (self._key and not is_plain(self._key)):
            raise SourceError(f"{shown(url)} is not a location in a bucket: expected {split.scheme}://BUCKET/PREFIX")
        self._bucket = Bucket(f"{split.scheme}://{split.netloc}")
        self._url = f"{self._bucket.url}/{self._key}".rstrip("/")
        self.warnings: list[str] = []

    def list(self, tokens: Mapping[str, str]) -> Iterable[FileEntry]:
        """List every object, sorted by name. tokens: not used. Raises SourceError."""
        self.warnings = []
        with _failures(self._url):
            objects = [item for page in self._bucket.pages(self._key) for item in page]
            if not objects:
                return self._single()
            return self._entries(objects)

    def read(self, name: str, token: str) -> BinaryIO:
        """Read the listed version of an object into an unlinked temporary file, in bounded memory."""
        seen = self._seen(name, token)

        def fill(file: io.BufferedRandom) -> None:
            try:
                with _failures(self._url):
                    same = self._bucket.fetch_as(seen, file.fileno())
            except SourceError as error:
                if isinstance(error.__cause__, NotFound):
                    where = self._bucket.path(seen.name)
                    raise ChangedError(f"{where} was deleted after it was listed") from error
                raise
            if not same:
                raise ChangedError(f"{self._bucket.path(seen.name)} was replaced after it was listed")

        return filled(fill, self._scratch)

    def _single(self) -> Sequence[FileEntry]:
        """Return the object that the URL itself names."""
        item = self._bucket.find(self._key) if self._key else None
        if item is None:
            raise SourceError(
                f"{self._url} has no object: check its spelling. A prefix ends at a slash, so docs does not match "
                "docs2/"
            )
        return [self._entry(unicodedata.normalize("NFC", item.name.rpartition("/")[2]), item)]

    def _entries(self, objects: Sequence[BucketObject]) -> Sequence[FileEntry]:
        skipped = Skipped()
        stores = self._stores(objects)
        by_name: dict[str, list[BucketObject]] = {}
        for item in objects:
            below = item.name[len(self._key) :].lstrip("/")
            if why_hidden(below) or (item.bytes == 0 and "." not in below.rpartition("/")[2]):
                continue
            name = unicodedata.normalize("NFC", below)
            if not is_plain(name):
                skipped.add("their names have control characters", name)
            elif not any(f"{item.name}/".startswith(store) for store in stores):
                by_name.setdefault(name, []).append(item)
        listed = []
        for name, several in sorted(by_name.items()):
            several.sort(key=lambda item: (item.name != self._full(name), item.name, -item.bytes))
            chosen = several[0]
            if len(several) > 1 or chosen.bytes == 0:
                # A listing does not distinguish `a`, `/a` and the marker `a/`; a request shows which object is read.
                actual = self._bucket.find(chosen.name)
                if actual is None:
                    continue
                same = (item for item in several if item.name == actual.name and item.etag == actual.etag)
                chosen = next(same, actual)
                for item in several:
                    if item.name != chosen.name or (item.bytes and item != chosen):
                        skipped.add("another object has the same name except for slashes or Unicode forms", name)
            listed.append(self._entry(name, chosen))
        self.warnings += skipped.sentences()
        return listed

    def _stores(self, objects: Sequence[BucketObject]) -> tuple[str, ...]:
        """Return the prefixes of indexmill's own stores, whose files are not documents."""
        store_files = [item for item in objects if f"/{item.name}".endswith(f"/{STORE_FILE}")]
        roots = {item.name.removesuffix(STORE_FILE): item for item in store_files}
        with_blobs = {f"/{item.name}".partition(_BLOBS)[0][1:] for item in objects if _BLOBS in f"/{item.name}"}
        return tuple(
            sorted(root for root, file in roots.items() if root.rstrip("/") in with_blobs or self._is_new_store(file))
        )

    def _is_new_store(self, file: BucketObject) -> bool:
        if file.bytes > _LARGEST_STORE_FILE:
            return False
        with tempfile.TemporaryFile() as copy:
            self._bucket.fetch_as(file, copy.fileno())
            copy.seek(0)
            try:
                content = json.load(copy)
            except ValueError:
                return False
        return isinstance(content, dict) and content.keys() == {"format_version"}

    def _full(self, name: str) -> str:
        return f"{self._key}/{name}" if self._key else name

    def _entry(self, name: str, item: BucketObject) -> FileEntry:
        when = 0.0 if item.etag or item.version else item.modified
        values = [item.bytes, item.etag, item.version, when]
        if item.name != self._full(name):
            values.append(item.name)
        return FileEntry(name, item.bytes, json.dumps(values, separators=(",", ":")), item.modified)

    def _seen(self, name: str, token: str) -> BucketObject:
        """Look up an entry's object by its token. Raises OSError for a token that this source did not issue."""
        try:
            size, etag, version, when, *key = json.loads(token)
            seen = BucketObject(str(key[0]) if key else self._full(name), int(size), float(when), str(etag), version)
        except (TypeError, ValueError) as error:
            raise OSError(
                f"{shown(name)} was not listed by {self._url}: the source did not issue the token {shown(token)}"
            ) from error
        if not f"{seen.name}/".startswith(f"{self._key}/" if self._key else ""):
            raise OSError(f"{shown(seen.name)} is not below {self._url}")
        return seen


@contextmanager
def _failures(url: str) -> Iterator[None]:
    """Convert errors of a bucket to SourceError, with advice."""
    try:
        yield
    except NotFound as error:
        raise SourceError(str(error)) from error
    except StoreNotWritable as error:
        raise SourceError(
            f"{error}. Reading documents requires permission to list the bucket and to get objects"
        ) from error
    except StoreError as error:
        raise SourceError(f"{error}{_advice(str(error), url)}") from error


def _advice(message: str, url: str) -> str:
    if "NoSuchBucket" in message or "ContainerNotFound" in message:
        return f". There is no such bucket: check the spelling of {url}, the region and the endpoint in the environment"
    if "invalid path" in message:
        return (
            ". An object whose name has an empty part, `..` or a control character hides other objects from the "
            "listing: rename or remove it, or give prefixes that exclude it"
        )
    return ". Requests were retried for a while; check the network and the endpoint in the environment"
