"""Writes the formulas of Office files (OMML) as text on one line, such as `(a+b)/2`."""

from __future__ import annotations

from tasks.stages.ingest.formats.xml import Element, each, first


def formula(element: Element) -> str:
    """Return a formula on one line. Cells are separated by `, `; rows, and the lines of an array, by `; `."""
    parts: list[str] = []
    follows_function = False
    for child in element:
        text = _written(child)
        parts.append(f" {text}" if follows_function and text[:1].isalnum() else text)
        follows_function = child.tag == "m:func"
    return "".join(parts)


def _written(element: Element) -> str:
    match element.tag:
        case "m:t":
            return element.text or ""
        case "w:br":
            return " "
        case "m:f":
            above, below = _grouped(element, "m:num"), _grouped(element, "m:den")
            return f"{above}; {below}" if _character(element, "m:fPr/m:type", "bar") == "noBar" else f"{above}/{below}"
        case "m:sSup" | "m:sSub" | "m:sSubSup":
            return f"{_inner(element, 'm:e')}{_scripts(element)}"
        case "m:sPre":
            return f"{_scripts(element)}{_inner(element, 'm:e')}"
        case "m:rad":
            return f"{_inner(element, 'm:deg')}√({_inner(element, 'm:e')})"
        case "m:nary":
            low, high = _inner(element, "m:sub"), _inner(element, "m:sup")
            bounds = (f"_({low})" if low else "") + (f"^({high})" if high else "")
            return f"{_character(element, 'm:naryPr/m:chr', '∫')}{bounds} {_inner(element, 'm:e')}"
        case "m:d":
            separator = _character(element, "m:dPr/m:sepChr", "|")
            inner = separator.join(formula(child) for child in each(element, "m:e"))
            start, end = _character(element, "m:dPr/m:begChr", "("), _character(element, "m:dPr/m:endChr", ")")
            return f"{start}{inner}{end}"
        case "m:m":
            return "; ".join(", ".join(formula(cell) for cell in each(row, "m:e")) for row in each(element, "m:mr"))
        case "m:eqArr":  # `&` aligns the lines
            return "; ".join(formula(line).replace("&", "") for line in each(element, "m:e"))
        case "m:func":
            argument = _inner(element, "m:e")
            return _inner(element, "m:fName") + (argument if argument.startswith("(") else f" {argument}")
        case "m:limLow" | "m:limUpp":
            return f"{_inner(element, 'm:e')}{'_' if element.tag == 'm:limLow' else '^'}({_inner(element, 'm:lim')})"
        case "m:acc":
            return _inner(element, "m:e") + _character(element, "m:accPr/m:chr", "\u0302")
        case "m:phant" if _character(element, "m:phantPr/m:show", "1") in ("0", "off", "false"):
            return ""
        case "m:oMathPara":
            return "; ".join(formula(line) for line in each(element, "m:oMath"))
        case "w:del" | "w:moveFrom":
            return ""
        case tag:
            return "" if tag.endswith("Pr") else formula(element)


def _scripts(element: Element) -> str:
    marks = (("_", "m:sub"), ("^", "m:sup"))
    return "".join(mark + _grouped(element, tag) for mark, tag in marks if first(element, tag) is not None)


def _character(element: Element, path: str, default: str) -> str:
    child = first(element, path)
    return default if child is None else child.get("m:val", "")


def _inner(element: Element, tag: str) -> str:
    child = first(element, tag)
    return "" if child is None else formula(child).strip()


def _grouped(element: Element, tag: str) -> str:
    text = _inner(element, tag)
    return text if len(text) == 1 or text.isalnum() else f"({text})"
