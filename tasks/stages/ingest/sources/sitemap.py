"""Parses a sitemap or an index of sitemaps: XML without a DTD, or one URL per line. Either may be gzipped."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

LARGEST = 50 << 20
"""The maximum size of an uncompressed sitemap in bytes, from the sitemap protocol."""
_LONGEST_URL = 4_096
_DEEPEST = 32
_PIECE = 1 << 16


class SitemapError(ValueError):
    """The data is not a sitemap, or exceeds a limit."""


@dataclass(slots=True)
class Sitemap:
    """The URLs of a sitemap or, for an index, the URLs of its `sitemaps`."""

    urls: list[str] = field(default_factory=list)
    sitemaps: list[str] = field(default_factory=list)


def parse_sitemap(data: bytes) -> Sitemap:
    """Parse a sitemap; the order of the URLs is preserved. Raises SitemapError."""
    data = _unpacked(data)
    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        return Sitemap(urls=parse_list(data))
    handler = _Handler()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartDoctypeDeclHandler = handler.refuse
    parser.EntityDeclHandler = handler.refuse
    parser.StartElementHandler = handler.start
    parser.EndElementHandler = handler.end
    parser.CharacterDataHandler = handler.text
    try:
        for at in range(0, len(data), _PIECE):
            parser.Parse(data[at : at + _PIECE], False)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise SitemapError(f"it is not XML ({error})") from error
    if handler.root not in ("urlset", "sitemapindex"):
        raise SitemapError(f"it begins with <{handler.root[:50]}>: expected <urlset> or <sitemapindex>")
    return handler.sitemap


def parse_list(data: bytes) -> list[str]:
    """Return the URLs of a list, one per line; lines that begin with # are comments. Raises SitemapError."""
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise SitemapError("it is neither XML nor UTF-8") from error
    urls = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if odd := next((line for line in urls if "://" not in line[:20] or len(line) > _LONGEST_URL), None):
        raise SitemapError(f"one of its lines is not a URL: {odd[:80]!a}")
    return urls


class _Handler:
    def __init__(self) -> None:
        self.sitemap, self.root = Sitemap(), ""
        self._open: list[str] = []
        self._text: list[str] | None = None
        self._length = 0

    def refuse(self, *_: Any) -> None:
        raise SitemapError("it has a document type or entities, which no sitemap needs")

    def start(self, name: str, _: dict[str, str]) -> None:
        name = name.rpartition(" ")[2]
        self.root = self.root or name
        self._open.append(name)
        if len(self._open) > _DEEPEST:
            raise SitemapError("it is nested more deeply than sitemaps are")
        if self._open[1:] in (["url", "loc"], ["sitemap", "loc"]):
            self._text, self._length = [], 0

    def end(self, _: str) -> None:
        if self._text is not None and self._open[-1] == "loc":
            url = "".join(self._text).strip()
            if url:
                (self.sitemap.urls if self._open[-2] == "url" else self.sitemap.sitemaps).append(url)
            self._text = None
        self._open.pop()

    def text(self, data: str) -> None:
        if self._text is None:
            return
        self._length += len(data)
        if self._length > _LONGEST_URL:
            raise SitemapError(f"one of its URLs has more than {_LONGEST_URL} characters")
        self._text.append(data)


def _unpacked(data: bytes) -> bytes:
    if data.startswith(b"\x1f\x8b"):
        try:
            packed = zlib.decompressobj(wbits=31)
            data = packed.decompress(data, LARGEST + 1)
        except zlib.error as error:
            raise SitemapError(f"it cannot be unpacked ({error})") from error
        if len(data) <= LARGEST and not packed.eof:
            raise SitemapError("its gzip data is cut off")
    if len(data) > LARGEST:
        raise SitemapError(f"it is larger than {LARGEST >> 20} MiB")
    return data
