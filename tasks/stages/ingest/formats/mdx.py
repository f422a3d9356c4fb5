"""MDX (.mdx): Markdown with components, of which the content and the titles are read.

Excluded are imports, exports and comments, and the tags of components; a title or label becomes a line of its own. Code
is unchanged. MDX has no indented code, so authors indent the content of a component: it loses the indentation of its
first line, which Markdown would read as code.
"""

from __future__ import annotations

import re

_PIECE = re.compile(
    r"(?P<kept>^[ \t]*(?P<fence>`{3,}|~{3,}).*(?:\n(?![ \t]*(?P=fence)).*)*+(?:\n[ \t]*(?P=fence).*)?|`[^`\n]*`)"
    r"|^export\b.*[{(\[][ \t]*\n(?:(?![})\]]).*\n){0,400}+[})\]].*\n"
    r"|^(?:import|export)\b.*\n(?:.+\n)*+"
    r"|\{/\*(?:[^*{]|\*(?!/)|\{(?!/\*))*+\*/\}"
    r"|<(?P<close>/?)(?P<name>[A-Z][\w.]*+|(?=/?>))"
    r"(?P<attributes>(?:[^<>\"'{}/]|/(?!>)|\"[^\"]*\"|'[^']*'|\{(?:[^{}]|\{[^{}]*\})*+\}){0,5000}+)(?P<single>/?)>",
    re.MULTILINE,
)
_TITLE = re.compile(r"\b(?:title|label|header|question|summary)=\{?(?:\"([^\"\n]*)\"|['`]([^'`\n]*)['`])")
_FIELD = re.compile(r"\b(?:name|path|query|body|header)=(?:\"([^\"\n]*)\"|'([^'\n]*)')")
"""The name of a parameter in the components `ParamField` and `ResponseField`."""
_OPEN, _END, _CLOSE = "\ue000\ue001\ue002"
"""Delimiters of tags; these characters have no meaning in any text."""
_TAG = re.compile(f"{_OPEN}([^{_END}]*){_END}|{_CLOSE}")


def without_components(text: str) -> str:
    """Return the Markdown of an MDX text."""
    lines: list[str] = []
    indents: list[int | None] = [0]  # of the content of the open components; None before the first line of the content
    for line in _PIECE.sub(_marked, _TAG.sub("", text)).split("\n"):
        words = line.lstrip(" \t")
        indent = len(line) - len(words)
        tags = list(_TAG.finditer(words))
        is_block = bool(tags) and not _TAG.sub("", words).strip()
        if not is_block and words:
            if indents[-1] is None:
                indents[-1] = indent
            shown = _TAG.sub(lambda tag: tag[1] or "", words)
            lines.append(" " * max(0, indent - (indents[-1] or 0)) + shown)
        elif not words:
            lines.append("")
        for tag in tags:
            if is_block and tag[1]:
                lines += ["", f"**{tag[1]}**", ""]
            if tag[0] != _CLOSE:
                indents.append(None)
            elif len(indents) > 1:
                indents.pop()
    return "\n".join(lines)


def _marked(match: re.Match[str]) -> str:
    """Return code unchanged, and a tag with delimiters around its title; nothing for other pieces."""
    if match["kept"] is not None:
        return match[0]
    if match["attributes"] is None:
        return ""
    if match["close"]:
        return _CLOSE
    is_field = match["name"] in ("ParamField", "ResponseField")
    title = (_FIELD if is_field else _TITLE).search(match["attributes"])
    return f"{_OPEN}{(title[1] or title[2] or '') if title else ''}{_END}" + _CLOSE * bool(match["single"])
