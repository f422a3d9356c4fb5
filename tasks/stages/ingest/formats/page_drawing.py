"""Reads what a PDF page draws besides text: the ruling lines of tables, filled areas and pictures.

Rulings divide tables into cells; areas and pictures tell whether white or invisible text can be seen.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import pypdfium2 as pdfium
from pypdfium2 import raw

Area = tuple[float, float, float, float]
"""Left, bottom, right, top in the coordinates of the page's content; y grows upwards."""
Matrix = tuple[float, float, float, float, float, float]

_MOST_OBJECTS = 20_000  # a page with more is a drawing, such as a map
_MOST_SEGMENTS = 2_000  # a path with more is a curve or a picture
_MOST_AREAS = 2_000
_DEPTH = 4
_THIN = 3.0  # points: the thickness of a ruling at most
_SHORTEST = 4.0  # points
_SCAN = 0.3  # the share of a page that a scan covers at least
_WHITE = 250  # of 255: each colour of what is white
_WHOLE = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


@dataclass(slots=True)
class Drawing:
    """What a page draws. rulings: thin areas. areas: filled in a colour, or a picture. pictures: pictures only.

    complete: False if the page draws too much to be read, or forms too deep in forms.
    """

    rulings: list[Area] = field(default_factory=list)
    areas: list[Area] = field(default_factory=list)
    pictures: list[Area] = field(default_factory=list)
    complete: bool = True

    def is_behind(self, x: float, y: float) -> bool:
        """Return whether something that is not white may be behind a point."""
        if not self.complete:
            return True
        return any(left <= x <= right and bottom <= y <= top for left, bottom, right, top in self.areas)

    def is_scan(self, width: float, height: float) -> bool:
        """Return whether pictures cover a good part of a page of this size."""
        covered = sum((right - left) * (top - bottom) for left, bottom, right, top in self.pictures)
        return not self.complete or covered >= _SCAN * width * height


def drawing_of(page: pdfium.PdfPage) -> Drawing:
    """Read what a page draws, up to _MOST_OBJECTS objects."""
    drawing = Drawing()
    budget = [_MOST_OBJECTS]
    handle = page.raw
    count = raw.FPDFPage_CountObjects(handle)
    _read(drawing, partial(raw.FPDFPage_GetObject, handle), count, _WHOLE, 0, budget)
    if budget[0] < 0 or len(drawing.areas) > _MOST_AREAS:
        return Drawing(pictures=drawing.pictures, complete=False)
    return drawing


def _read(
    drawing: Drawing, object_at: Callable[[int], Any], count: int, matrix: Matrix, depth: int, budget: list[int]
) -> None:
    for at in range(count):
        budget[0] -= 1
        if budget[0] < 0:
            return
        item = object_at(at)
        kind = raw.FPDFPageObj_GetType(item)
        if kind == raw.FPDF_PAGEOBJ_PATH:
            _read_path(drawing, item, matrix)
        elif kind in (raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_SHADING):
            if area := _bounds(item, matrix):
                drawing.areas.append(area)
                if kind == raw.FPDF_PAGEOBJ_IMAGE:
                    drawing.pictures.append(area)
        elif kind == raw.FPDF_PAGEOBJ_FORM and depth == _DEPTH:
            drawing.complete = False
        elif kind == raw.FPDF_PAGEOBJ_FORM:
            of_form = _matrix(item)
            inner = raw.FPDFFormObj_CountObjects(item)
            if of_form and inner > 0:
                child = _after(of_form, matrix)
                _read(drawing, partial(raw.FPDFFormObj_GetObject, item), inner, child, depth + 1, budget)


def _read_path(drawing: Drawing, path: Any, matrix: Matrix) -> None:
    fill, stroke = ctypes.c_int(), ctypes.c_int()
    if not raw.FPDFPath_GetDrawMode(path, ctypes.byref(fill), ctypes.byref(stroke)) or not (fill.value or stroke.value):
        return
    area = _bounds(path, matrix)
    if area is None:
        return
    count = raw.FPDFPath_CountSegments(path)
    is_band = bool(stroke.value) and count <= 2  # a thick line may be a background
    if is_band or (fill.value and not is_white(path)):
        drawing.areas.append(area)
    if min(area[2] - area[0], area[3] - area[1]) <= _THIN:
        _add_ruling(drawing, area)
        return
    of_path = _matrix(path)
    if not 2 < count <= _MOST_SEGMENTS or of_path is None:
        return
    outlines = list(_outlines(path, count, _after(of_path, matrix)))
    for points in outlines:
        if stroke.value:
            for (x0, y0), (x1, y1) in pairwise(points):
                if min(abs(x1 - x0), abs(y1 - y0)) <= 1:
                    _add_ruling(drawing, (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)))
        elif len(outlines) > 1:
            xs, ys = [x for x, _ in points], [y for _, y in points]
            _add_ruling(drawing, (min(xs), min(ys), max(xs), max(ys)))


def _outlines(path: Any, count: int, matrix: Matrix) -> Iterator[list[tuple[float, float]]]:
    """Yield the corners of a path's outlines; none if it has curves."""
    outlines: list[list[tuple[float, float]]] = []
    x, y = ctypes.c_float(), ctypes.c_float()
    for at in range(count):
        segment = raw.FPDFPath_GetPathSegment(path, at)
        kind = raw.FPDFPathSegment_GetType(segment)
        if kind == raw.FPDF_SEGMENT_BEZIERTO or not raw.FPDFPathSegment_GetPoint(segment, x, y):
            return
        point = _moved(x.value, y.value, matrix)
        if kind == raw.FPDF_SEGMENT_MOVETO or not outlines:
            outlines.append([point])
        else:
            outlines[-1].append(point)
        if raw.FPDFPathSegment_GetClose(segment):
            outlines[-1].append(outlines[-1][0])
    yield from outlines


def _add_ruling(drawing: Drawing, area: Area) -> None:
    width, height = area[2] - area[0], area[3] - area[1]
    if min(width, height) <= _THIN and max(width, height) >= _SHORTEST:
        drawing.rulings.append(area)


def is_white(item: Any) -> bool:
    """Return whether an object of a page is filled in white, or fully transparent."""
    red, green, blue, alpha = (ctypes.c_uint() for _ in range(4))
    if not raw.FPDFPageObj_GetFillColor(item, red, green, blue, alpha):
        return False
    return not alpha.value or min(red.value, green.value, blue.value) >= _WHITE


def _bounds(item: Any, matrix: Matrix) -> Area | None:
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    if not raw.FPDFPageObj_GetBounds(item, left, bottom, right, top):
        return None
    x0, y0 = _moved(left.value, bottom.value, matrix)
    x1, y1 = _moved(right.value, top.value, matrix)
    area = (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
    return area if all(map(math.isfinite, area)) else None


def _matrix(item: Any) -> Matrix | None:
    matrix = raw.FS_MATRIX()
    if not raw.FPDFPageObj_GetMatrix(item, ctypes.byref(matrix)):
        return None
    values = (matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f)
    return values if all(map(math.isfinite, values)) else None


def _moved(x: float, y: float, matrix: Matrix) -> tuple[float, float]:
    a, b, c, d, e, f = matrix
    return a * x + c * y + e, b * x + d * y + f


def _after(first: Matrix, second: Matrix) -> Matrix:
    """Return the matrix that applies `first`, then `second`."""
    a, b, c, d, _, _ = first
    e, f = _moved(first[4], first[5], second)
    p, q, r, s, _, _ = second
    return a * p + b * r, a * q + b * s, c * p + d * r, c * q + d * s, e, f
