"""Reads what was typed onto a PDF page: the values of form fields, and notes that show their text on the page.

PDFium's text does not include them, and its appearance streams are missing in many files. Notes behind an icon, and
what is marked as hidden or as a password, are not read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pypdfium2 as pdfium
from pypdfium2 import raw

_MOST_NOTES = 5_000  # of a page
_MOST_LETTERS = 200_000  # of a page
_LONGEST = 100_000  # bytes of UTF-16
_HIDDEN = raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW
_CHECKED = "\u2611"
_TEXT_FIELDS = (raw.FPDF_FORMFIELD_TEXTFIELD, raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX)
_BUTTONS = (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON)


def typed_texts(document: pdfium.PdfDocument, page: pdfium.PdfPage) -> Iterator[tuple[str, raw.FS_RECTF]]:
    """Yield the texts that were typed onto a page, and their areas in the coordinates of its content."""
    form = document.formenv.raw if document.formenv is not None else None
    letters = 0
    for index in range(min(raw.FPDFPage_GetAnnotCount(page.raw), _MOST_NOTES)):
        note = raw.FPDFPage_GetAnnot(page.raw, index)
        if not note:
            continue
        try:
            area = raw.FS_RECTF()
            text = _text_of(note, form)
            if text.strip() and raw.FPDFAnnot_GetRect(note, ctypes.byref(area)):
                letters += len(text)
                if letters > _MOST_LETTERS:
                    return
                yield text, area
        finally:
            raw.FPDFPage_CloseAnnot(note)


def _text_of(note: Any, form: Any) -> str:
    if raw.FPDFAnnot_GetFlags(note) & _HIDDEN:
        return ""
    kind = raw.FPDFAnnot_GetSubtype(note)
    if kind == raw.FPDF_ANNOT_FREETEXT:
        return _string(lambda buffer, size: raw.FPDFAnnot_GetStringValue(note, b"Contents", buffer, size))
    if kind != raw.FPDF_ANNOT_WIDGET or form is None:
        return ""
    field = raw.FPDFAnnot_GetFormFieldType(form, note)
    if field in _BUTTONS:
        return _CHECKED if raw.FPDFAnnot_IsChecked(form, note) else ""
    is_password = raw.FPDFAnnot_GetFormFieldFlags(form, note) & raw.FPDF_FORMFLAG_TEXT_PASSWORD
    if field not in _TEXT_FIELDS or (field == raw.FPDF_FORMFIELD_TEXTFIELD and is_password):
        return ""
    return _string(lambda buffer, size: raw.FPDFAnnot_GetFormFieldValue(form, note, buffer, size))


def _string(read: Callable[[Any, int], int]) -> str:
    size = read(None, 0)
    if not 2 < size <= _LONGEST:
        return ""
    buffer = ctypes.create_string_buffer(size)
    read(ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size)
    return buffer.raw[: size - 2].decode("utf-16-le", "ignore")
