"""Web pages and files: URLs from the settings, from lists, or from sitemaps. No link is followed.

A listing requests every page, with the previous version's validators (ETag, Last-Modified) if there are any: an
unchanged page costs a response without a body. A new body is stored in the run's scratch folder, and read from there.
The token contains the URL, the validators and a digest of the body, which shows changes even without validators.

A 404 or 410 deletes the document. A page that robots.txt disallows is left out, with a warning. A page with any other
status than 200 or 304 is rejected. If a site fails or does not answer, the build fails, since the site's pages would
otherwise look deleted.
"""

from __future__ import annotations

import datetime
import email.utils
import hashlib
import json
import re
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import unquote_to_bytes, urlsplit

import httpx2

from schemas.encodings import codec_of
from schemas.sources import FormatNames, WebSettings
from tasks.stages.ingest.globs import is_chosen
from tasks.stages.ingest.source_files import asked_for, kind_of
from tasks.stages.ingest.sources.file_names import Skipped, shown
from tasks.stages.ingest.sources.sitemap import LARGEST, SitemapError, parse_list, parse_sitemap
from tasks.stages.ingest.sources.source_interface import ChangedError, FileEntry, SourceError
from tasks.stages.ingest.sources.web_client import (
    DisallowedError,
    RefusedError,
    WebClient,
    body,
    chunks,
    is_public,
    normal_url,
    site_of,
)

_THREADS = 8
"""The number of sites that are requested at the same time."""
_DEEPEST = 3
"""The maximum nesting of sitemap indexes; the protocol allows one level."""
_MOST_SITEMAPS = 1_000
_LONGEST_NAME = 900
_GONE = frozenset({404, 410})

_SUFFIXES = {
    "application/csv": ".csv",
    "application/epub+zip": ".epub",
    "application/json": ".json",
    "application/msword": ".doc",
    "application/pdf": ".pdf",
    "application/rtf": ".rtf",
    "application/vnd.ms-excel": ".xls",
    "application/vnd.ms-outlook": ".msg",
    "application/vnd.ms-powerpoint": ".ppt",
    "application/vnd.oasis.opendocument.spreadsheet": ".ods",
    "application/vnd.oasis.opendocument.text": ".odt",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/x-ipynb+json": ".ipynb",
    "application/x-ndjson": ".ndjson",
    "application/xhtml+xml": ".html",
    "message/rfc822": ".eml",
    "text/asciidoc": ".adoc",
    "text/csv": ".csv",
    "text/html": ".html",
    "text/markdown": ".md",
    "text/org": ".org",
    "text/plain": ".txt",
    "text/rtf": ".rtf",
    "text/tab-separated-values": ".tsv",
    "text/x-markdown": ".md",
    "text/x-rst": ".rst",
}

_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)")
_UNESCAPED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~ ")
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")


@dataclass(frozen=True, slots=True)
class _Token:
    """The version token of a page: URL, validators, and the digest, size, suffix and stated encoding of the body."""

    url: str
    etag: str
    modified: str
    digest: str
    size: int
    suffix: str
    charset: str

    def __str__(self) -> str:
        return json.dumps(astuple(self), separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> _Token | None:
        try:
            url, etag, modified, digest, size, suffix, charset = json.loads(text)
        except (TypeError, ValueError):
            return None
        texts = (url, etag, modified, digest, suffix, charset)
        if not all(isinstance(value, str) for value in texts) or not isinstance(size, int):
            return None
        return (
            cls(url, etag, modified, digest, size, suffix, charset) if re.fullmatch(r"[0-9a-f]{64}", digest) else None
        )


@dataclass(slots=True)
class _Listed:
    """The URLs of a source, and the result for each URL: a page, a rejection, or the reason why it is skipped."""

    urls: Sequence[str]
    pages: dict[str, _Token] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    skipped: Skipped = field(default_factory=Skipped)


class WebSource:
    """Web pages and files as a file source."""

    def __init__(self, settings: WebSettings, scratch: Path) -> None:
        """Raises SourceError for a URL that is not http or https."""
        self._settings, self._scratch = settings, scratch
        key = hashlib.sha256(settings.model_dump_json().encode()).hexdigest()[:24]
        self._bodies, self._refusals = scratch / f"web-{key}" / "bodies", scratch / f"web-{key}" / "refused"
        for folder in (self._bodies, self._refusals):
            folder.mkdir(parents=True, exist_ok=True)
        self._named_urls = [_given_url(url) for url in settings.urls]
        self._client: WebClient | None = None
        self._lock = threading.Lock()
        self.warnings: list[str] = []

    def list(self, tokens: Mapping[str, str]) -> Iterable[FileEntry]:
        """List every page, sorted by name. The tokens' validators are sent, so that servers omit unchanged bodies."""
        self.warnings = []
        listed = _Listed([])
        listed.urls = self._urls(listed.skipped)
        pages = [page for text in tokens.values() if (page := _Token.of(text)) is not None]
        self._ask(listed, {page.url: page for page in pages})
        entries = sorted(self._entries(listed), key=lambda entry: entry.name)
        self.warnings += listed.skipped.sentences()
        return entries

    def read(self, name: str, token: str) -> BinaryIO:
        """Read the listed version of a page from the scratch folder, or request it again if there is no copy."""
        page = _Token.of(token)
        if page is None:
            refusal = self._refusal(name)
            raise OSError(refusal.read_text(encoding="utf-8") if refusal.exists() else f"{shown(name)} was not listed")
        path = self._bodies / page.digest
        if not path.exists():
            try:
                again = self._page(page.url, None)
            except DisallowedError:
                raise ChangedError(f"robots.txt now disallows {shown(page.url)}") from None
            except RefusedError as error:
                raise OSError(str(error)) from error
            if not isinstance(again, _Token) or again.digest != page.digest:
                raise ChangedError(f"{shown(page.url)} has changed since it was listed")
        return cast("BinaryIO", path.open("rb"))

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        with self._lock:
            if self._client is not None:
                self._client.close()
            self._client = None

    def __del__(self) -> None:
        if getattr(self, "_client", None) is not None:
            self.close()

    def _web(self) -> WebClient:
        with self._lock:
            if self._client is None:
                self._client = WebClient(self._settings.delay_seconds, self._settings.contact, self._scratch)
            return self._client

    def _urls(self, skipped: Skipped) -> Sequence[str]:
        """Return the URLs of the pages to request, sorted. Raises SourceError if the list may be incomplete."""
        urls = set(self._named_urls)
        for where in self._settings.lists:
            urls.update(self._listed(where, skipped))
        for where in self._settings.sitemaps:
            urls.update(self._mapped(_given_url(where), skipped))
            self._check_number(urls)
        self._check_number(urls)
        if not urls:
            raise SourceError("a web source names no page: give urls, or lists or sitemaps that contain URLs")
        return sorted(url for url in urls if self._may_be_chosen(url))

    def _check_number(self, urls: set[str]) -> None:
        if len(urls) > self._settings.max_files:
            raise SourceError(
                f"more than {self._settings.max_files:,} pages are named (max_files): raise max_files, or name fewer"
            )

    def _may_be_chosen(self, url: str) -> bool:
        """Return whether `include` and `exclude` allow a page of some type; otherwise it need not be requested."""
        globs = (self._settings.include, self._settings.exclude)
        names = (name_of(url, suffix, self._settings.formats) for suffix in ("", *sorted(set(_SUFFIXES.values()))))
        return any(is_chosen(name, *globs) for name in names)

    def _listed(self, where: str, skipped: Skipped) -> Iterator[str]:
        """Yield the URLs in a list. where: a local file, whose URLs may have any host, or a URL."""
        remote = "://" in where
        try:
            data = self._document(_given_url(where), "list") if remote else _read_list(where)
            lines = parse_list(data)
        except SitemapError as error:
            raise SourceError(f"the list {shown(where)} cannot be read: {error}") from error
        except OSError as error:
            raise SourceError(f"the list {shown(where)} cannot be read: {error.strerror or error}") from error
        list_host = urlsplit(where).hostname if remote else None
        public: dict[str, bool] = {}
        for line in lines:
            url = normal_url(line)
            host = urlsplit(url).hostname or "" if url else ""
            if url is None:
                skipped.add("a list contains a line that is not a web URL", line)
            elif remote and host != list_host and not public.setdefault(host, is_public(host)):
                skipped.add("a list from the web names a host that is not public", line)
            else:
                yield url

    def _mapped(self, sitemap: str, skipped: Skipped) -> Iterator[str]:
        """Yield the URLs in a sitemap, or in the sitemaps of an index, that are on the same site."""
        ahead, seen = [(sitemap, 0)], {sitemap}
        while ahead:
            where, depth = ahead.pop()
            hosts = {urlsplit(sitemap).netloc, urlsplit(where).netloc}
            try:
                contents = parse_sitemap(self._document(where, "sitemap"))
            except SitemapError as error:
                raise SourceError(f"the sitemap {shown(where)} cannot be read: {error}") from error
            for line in contents.sitemaps:
                url = normal_url(line)
                if url is None or urlsplit(url).netloc not in hosts:
                    skipped.add("a sitemap names a sitemap of another site", line)
                elif url not in seen:
                    if depth >= _DEEPEST or len(seen) >= _MOST_SITEMAPS:
                        most = f"{_DEEPEST} levels or {_MOST_SITEMAPS:,} sitemaps"
                        raise SourceError(f"the sitemap {shown(sitemap)} has more than {most}")
                    seen.add(url)
                    ahead.append((url, depth + 1))
            for line in contents.urls:
                url = normal_url(line)
                if url is None or urlsplit(url).netloc not in hosts:
                    skipped.add("a sitemap names a page of another site", line)
                else:
                    yield url

    def _document(self, url: str, what: str) -> bytes:
        """Return the body of a list or a sitemap. Raises SourceError if it cannot be read: pages could be missing."""

        def receive(response: httpx2.Response) -> bytes:
            if response.status_code != 200:
                raise RefusedError(f"{shown(url)} answers {response.status_code}")
            return body(response, LARGEST)

        try:
            return self._web().get(url, receive)
        except DisallowedError:
            raise SourceError(f"the robots.txt of {site_of(url)} disallows the {what} {shown(url)}") from None
        except RefusedError as error:
            raise SourceError(f"the {what} cannot be read: {error}") from error

    def _ask(self, listed: _Listed, earlier: Mapping[str, _Token]) -> None:
        """Request all pages: several sites concurrently, but the pages of one site one after another."""
        by_site: dict[str, list[str]] = {}
        for url in listed.urls:
            by_site.setdefault(site_of(url), []).append(url)
        lock, failed = threading.Lock(), threading.Event()

        def site(urls: Sequence[str]) -> None:
            for url in urls:
                if failed.is_set():
                    return
                try:
                    result: _Token | str = self._page(url, earlier.get(url))
                except DisallowedError:
                    result = "robots.txt disallows them"
                except RefusedError as error:
                    with lock:
                        listed.refused[url] = str(error)
                    continue
                except BaseException:
                    failed.set()
                    raise
                with lock:
                    if isinstance(result, _Token):
                        listed.pages[url] = result
                    else:
                        listed.skipped.add(result, url)

        with ThreadPoolExecutor(_THREADS) as pool:
            for done in [pool.submit(site, urls) for urls in by_site.values()]:
                done.result()

    def _page(self, url: str, before: _Token | None) -> _Token | str:
        """Request a page. Returns its new or old token, or why the page is left out. Raises as `WebClient.get` does."""
        headers = {}
        if before is not None and (before.etag or before.modified):
            headers = {"If-None-Match": before.etag, "If-Modified-Since": before.modified}

        def receive(response: httpx2.Response) -> _Token | str:
            if response.status_code == 304 and headers and before is not None:
                return before
            if response.status_code in _GONE:
                return "their sites say that they are gone (404, 410)"
            if response.status_code != 200:
                raise RefusedError(f"{shown(url)} answers {response.status_code}")
            kind, _, parameters = response.headers.get("content-type", "").lower().partition(";")
            suffix = _SUFFIXES.get(kind.strip(), "")
            if kind_of(name_of(url, suffix, self._settings.formats), self._settings.formats) is None:
                return "their format is unknown"
            etag, modified = response.headers.get("etag", ""), response.headers.get("last-modified", "")
            digest, size = self._keep(response)
            return _Token(url, _header(etag), _header(modified), digest, size, suffix, _charset(parameters))

        return self._web().get(url, receive, {name: value for name, value in headers.items() if value})

    def _keep(self, response: httpx2.Response) -> tuple[str, int]:
        """Write a body to the scratch folder. Returns its digest and size."""
        most = self._settings.max_file_bytes
        with tempfile.NamedTemporaryFile(dir=self._bodies, prefix="part-", delete=False) as file:
            path = Path(file.name)
            try:
                size = 0
                hashed = hashlib.sha256()
                for chunk in chunks(response):
                    size += len(chunk)
                    if size > most:
                        raise RefusedError(f"{shown(str(response.url))} is over {most:,} bytes (max_file_bytes)")
                    hashed.update(chunk)
                    file.write(chunk)
                file.close()
                path.replace(self._bodies / hashed.hexdigest())
            except BaseException:
                path.unlink(missing_ok=True)
                raise
        return hashed.hexdigest(), size

    def _entries(self, listed: _Listed) -> Iterator[FileEntry]:
        names: dict[str, str] = {}
        for url in listed.urls:
            token = listed.pages.get(url)
            if token is None and url not in listed.refused:
                continue
            name = name_of(url, token.suffix if token is not None else ".html", self._settings.formats)
            if names.setdefault(name, url) != url:
                stem, dot, suffix = name.rpartition(".")
                name = f"{stem}~{hashlib.sha256(url.encode()).hexdigest()[:12]}{dot}{suffix}"
            if token is None:
                self._refusal(name).write_text(listed.refused[url], encoding="utf-8")
                yield FileEntry(name, details={"url": url})
            else:
                modified = _seconds(token.modified)
                yield FileEntry(name, token.size, str(token), modified, {"url": url}, token.charset)

    def _refusal(self, name: str) -> Path:
        return self._refusals / hashlib.sha256(name.encode()).hexdigest()


def name_of(url: str, suffix: str, formats: FormatNames | None = None) -> str:
    """Return the name of a page: host, path and query, and the suffix unless the path states the format."""
    split = urlsplit(url)
    *folders, last = split.path.lstrip("/").split("/")
    parts = [split.netloc, *map(_part, folders), _part(last or "index")]
    _, dot, end = parts[-1].rpartition(".")
    # A page generated by a program, such as a.php, is not source code.
    is_known = kind_of(parts[-1], formats or {}) is not None and asked_for(parts[-1], formats or ())
    says = bool(dot) and (is_known or f".{end}" == suffix)
    if split.query:
        parts[-1] += "?" + split.query.replace("/", "%2F")
    name = "/".join(parts)
    if says:
        suffix = f".{end}"
        name = name.removesuffix(suffix)
    if len(name.encode()) > _LONGEST_NAME:
        short = name.encode()[:_LONGEST_NAME].decode(errors="ignore").rstrip("/")
        name = f"{short}~{hashlib.sha256(url.encode()).hexdigest()[:16]}"
    return name + suffix


def _part(part: str) -> str:
    """Return a part of a URL's path with printable characters unescaped; empty and hidden parts are escaped."""

    def letters(match: re.Match[str]) -> str:
        data = unquote_to_bytes(match[0])
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return match[0].upper()
        return "".join(
            letter
            if (letter.isprintable() if not letter.isascii() else ord(letter) in _UNESCAPED)
            else "".join(f"%{b:02X}" for b in letter.encode())
            for letter in text
        )

    part = _ESCAPES.sub(letters, part)
    return f"%2E{part[1:]}" if part.startswith(".") else part or "%2F"


def _given_url(url: str) -> str:
    normal = normal_url(url)
    if normal is None:
        shape = url if "@" not in url else url.rpartition("@")[2]
        raise SourceError(f"{shown(shape)} is not a web URL: expected https://HOST/PATH, without credentials")
    return normal


def _read_list(where: str) -> bytes:
    with Path(where).expanduser().open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise SitemapError(f"it is larger than {LARGEST >> 20} MiB")
    return data


def _charset(parameters: str) -> str:
    """Return the encoding that a Content-Type states; empty if it is missing or unknown."""
    match = _CHARSET.search(parameters)
    try:
        return codec_of(match[1]) if match is not None else ""
    except LookupError:
        return ""


def _header(value: str) -> str:
    """Return a validator if it can be sent again, otherwise an empty string."""
    return value if value.isascii() and value.isprintable() and len(value) <= 1024 else ""


def _seconds(date: str) -> float | None:
    try:
        parsed = email.utils.parsedate_to_datetime(date)
        return parsed.replace(tzinfo=parsed.tzinfo or datetime.UTC).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
