"""Reads the elements of a JSON array one by one, in memory that does not grow with the array.

The array is cut at the commas between its elements without parsing them: only strings and brackets are tracked. So an
invalid element affects no other element, as long as its quotes and brackets are closed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase

_CHUNK = 1 << 16
_HEAD = 300
_BOM = b"\xef\xbb\xbf"
_QUOTE = ord('"')
_IN_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)  # possessive: one pass, whatever the text
_BETWEEN = re.compile(rb'["\[\]{},]')
_IN_ELEMENT = re.compile(rb'["\[\]{}]')


class BrokenArrayError(ValueError):
    """The file is not an array, ends before the array does, or continues after it."""


@dataclass(frozen=True, slots=True)
class ArrayElement:
    """The bytes between two commas, stripped of white space; only their beginning if they exceed the limit."""

    number: int  # from 1
    line: int  # the line in which it begins, from 1
    data: bytes
    too_large: bool


def elements(stream: BufferedIOBase, limit: int) -> Iterator[ArrayElement]:
    """Yield the elements of the JSON array in a stream; elements over `limit` bytes are cut to their beginning.

    Raises BrokenArrayError, after yielding the preceding elements, if the stream does not begin with an array, ends
    before the array does, or continues after it.
    """
    buffer = _ElementBuffer(limit)
    depth, in_string, escaped, opened = 0, False, False, False
    while chunk := stream.read1(_CHUNK):
        start = at = 0
        if not opened:
            text = chunk.removeprefix(_BOM)
            begin = len(chunk) - len(text.lstrip())
            buffer.line += chunk.count(b"\n", 0, begin)
            if begin == len(chunk):
                continue
            if chunk[begin : begin + 1] != b"[":
                raise BrokenArrayError("the file does not begin with an array")
            opened, start = True, begin + 1
            at = start
        while at < len(chunk):
            if escaped:
                escaped, at = False, at + 1
            elif in_string:
                match = _IN_STRING.match(chunk, at)
                at = len(chunk) if match is None else match.end()
                if at < len(chunk):  # at a quote, or at a backslash that ends the chunk
                    in_string, escaped = chunk[at] != _QUOTE, chunk[at] != _QUOTE
                    at += 1
            elif (mark := (_IN_ELEMENT if depth else _BETWEEN).search(chunk, at)) is None:
                at = len(chunk)
            else:
                at = mark.end()
                if mark[0] == b'"':
                    in_string = True
                elif mark[0] in b"[{":
                    depth += 1
                elif depth:
                    depth -= 1  # for either kind of bracket: parsing the element finds mismatches
                elif mark[0] != b"}":
                    buffer.add(chunk[start : at - 1])
                    if mark[0] == b",":
                        yield buffer.take()
                        start = at
                        continue
                    if buffer.number or buffer.data:
                        yield buffer.take()
                    _expect_the_end(chunk[at:], stream)
                    return
        buffer.add(chunk[start:])
    within = f"in element {buffer.number + 1}, which begins in line {buffer.line_of_data}"
    raise BrokenArrayError(f"the file ends before its array does, {within}" if opened else "the file is empty")


class _ElementBuffer:
    """Collects the element that is being read."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.number = 0  # the previous element's number
        self.line = self.line_of_data = 1
        self._begin()

    def _begin(self) -> None:
        self.data = bytearray()
        self._too_large = False

    def add(self, piece: bytes) -> None:
        if not self.data:
            text = piece.lstrip()
            self.line += piece.count(b"\n", 0, len(piece) - len(text))
            self.line_of_data = self.line
            piece = text
        self.line += piece.count(b"\n")
        if not self._too_large:
            self.data += piece
            if len(self.data) > self._limit:
                self._too_large = True
                del self.data[_HEAD:]

    def take(self) -> ArrayElement:
        self.number += 1
        element = ArrayElement(self.number, self.line_of_data, bytes(self.data).rstrip(), self._too_large)
        self._begin()
        return element


def _expect_the_end(rest: bytes, stream: BufferedIOBase) -> None:
    while not rest.strip():
        rest = stream.read1(_CHUNK)
        if not rest:
            return
    raise BrokenArrayError(f"the array is followed by more text: {rest.strip()[:60].decode('utf-8', 'replace')}")
