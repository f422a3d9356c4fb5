"""Formulas and symbols of a Word document as a line of text."""

from __future__ import annotations

from tasks.stages.ingest.formats.xml import Element, each, first

_SYMBOLS = {0xB7: "•", 0xA7: "▪", 0xD8: "➢", 0xFC: "✓", 0xE0: "→", 0xDF: "←", 0xA8: "☐", 0xFE: "☑", 0x6F: "☐"}


def symbol(element: Element) -> str:
    """A character that is stated by its place in a font of symbols; empty for an unknown one."""
    try:
        code = int(element.get("w:char", "")[:6], 16)
    except ValueError:
        return ""
    if 0xF000 <= code <= 0xF0FF:
        return _SYMBOLS.get(code - 0xF000, "")
    return chr(code) if code >= 0x20 and not 0xD800 <= code <= 0xF8FF and code <= 0x10FFFF else ""


def formula(element: Element) -> str:
    """A formula in one line, such as `(a+b)/2`."""
    parts: list[str] = []
    for one in element:
        tag = one.tag
        if tag == "m:t":
            parts.append(one.text or "")
        elif tag == "m:f":
            parts.append(f"{_grouped(one, 'm:num')}/{_grouped(one, 'm:den')}")
        elif tag in ("m:sSup", "m:sSub", "m:sSubSup"):
            below = f"_{_grouped(one, 'm:sub')}" if tag != "m:sSup" else ""
            above = f"^{_grouped(one, 'm:sup')}" if tag != "m:sSub" else ""
            parts.append(f"{_inner(one, 'm:e')}{below}{above}")
        elif tag == "m:rad":
            parts.append(f"{_inner(one, 'm:deg')}√({_inner(one, 'm:e')})")
        elif tag == "m:nary":
            sign = first(one, "m:naryPr/m:chr")
            low, high = _inner(one, "m:sub"), _inner(one, "m:sup")
            bounds = (f"_({low})" if low else "") + (f"^({high})" if high else "")
            parts.append(f"{'∫' if sign is None else sign.get('m:val', '')}{bounds} {_inner(one, 'm:e')}")
        elif tag == "m:d":
            parts.append("(" + ", ".join(formula(inner) for inner in each(one, "m:e")) + ")")
        elif not tag.endswith("Pr"):
            parts.append(formula(one))
    return "".join(parts)


def _inner(element: Element, tag: str) -> str:
    child = first(element, tag)
    return "" if child is None else formula(child)


def _grouped(element: Element, tag: str) -> str:
    text = _inner(element, tag)
    return text if len(text) == 1 or text.isalnum() else f"({text})"
