"""Converts formulas and symbols of a Word document to text on one line."""

from __future__ import annotations

from tasks.stages.ingest.formats.xml import Element, each, first

_SYMBOLS = {0xB7: "•", 0xA7: "▪", 0xD8: "➢", 0xFC: "✓", 0xE0: "→", 0xDF: "←", 0xA8: "☐", 0xFE: "☑", 0x6F: "☐"}


def symbol(element: Element) -> str:
    """Return the character for an element's code in a symbol font; empty if unknown."""
    try:
        code = int(element.get("w:char", "")[:6], 16)
    except ValueError:
        return ""
    if 0xF000 <= code <= 0xF0FF:
        return _SYMBOLS.get(code - 0xF000, "")
    return chr(code) if code >= 0x20 and not 0xD800 <= code <= 0xF8FF and code <= 0x10FFFF else ""


def formula(element: Element) -> str:
    """Return a formula on one line, such as `(a+b)/2`."""
    parts: list[str] = []
    for child in element:
        tag = child.tag
        if tag == "m:t":
            parts.append(child.text or "")
        elif tag == "m:f":
            parts.append(f"{_grouped(child, 'm:num')}/{_grouped(child, 'm:den')}")
        elif tag in ("m:sSup", "m:sSub", "m:sSubSup"):
            below = f"_{_grouped(child, 'm:sub')}" if tag != "m:sSup" else ""
            above = f"^{_grouped(child, 'm:sup')}" if tag != "m:sSub" else ""
            parts.append(f"{_inner(child, 'm:e')}{below}{above}")
        elif tag == "m:rad":
            parts.append(f"{_inner(child, 'm:deg')}√({_inner(child, 'm:e')})")
        elif tag == "m:nary":
            sign = first(child, "m:naryPr/m:chr")
            low, high = _inner(child, "m:sub"), _inner(child, "m:sup")
            bounds = (f"_({low})" if low else "") + (f"^({high})" if high else "")
            parts.append(f"{'∫' if sign is None else sign.get('m:val', '')}{bounds} {_inner(child, 'm:e')}")
        elif tag == "m:d":
            parts.append("(" + ", ".join(formula(inner) for inner in each(child, "m:e")) + ")")
        elif not tag.endswith("Pr"):
            parts.append(formula(child))
    return "".join(parts)


def _inner(element: Element, tag: str) -> str:
    child = first(element, tag)
    return "" if child is None else formula(child)


def _grouped(element: Element, tag: str) -> str:
    text = _inner(element, tag)
    return text if len(text) == 1 or text.isalnum() else f"({text})"
