"""A part of an index as one HTML page that needs nothing else.

Everything is inlined: the libraries, the style, the data, the texts. The content security policy allows the scripts
and the style by their digests and nothing else, no request either. Texts of documents stand in the page as text: Jinja
escapes them, the script sets them as text, and in the data every ``<`` is written as an escape.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import numpy as np

from indexmill.explore.graph import KINDS, Node, Part, Step
from indexmill.explore.layout import laid_out
from indexmill.explore.vendor_files import libraries
from indexmill.extras import not_installed
from indexmill.text.counted import counted

if TYPE_CHECKING:
    from jinja2 import Template

GENERATOR = "indexmill explore"
"""The page's ``<meta name="generator">``, by which a later page knows a file that it may replace."""

_FEW = 12
"""Neighbours of a node that the page lists where no script runs; the script lists more."""

_ROLES = {"start": "start", "seed": "named by the question", "bridge": "on the path", "through": "led to a hit"}


class Page(NamedTuple):
    """A page, and the policy to send along where it is served: what no ``meta`` element can say is in it, too."""

    html: bytes
    policy: str


def page_of(part: Part) -> Page:
    """The page of a part. The same part makes the same bytes. Raises ModelUnavailable if Jinja is not installed."""
    scripts = [*(library.script for library in libraries()), _own("explorer.js")]
    style = _own("explorer.css")
    policy = _policy(scripts, style)
    groups = _groups(part)
    html = _template().render(
        part=part,
        generator=GENERATOR,
        policy=policy,
        style=_safe(style),
        scripts=[_safe(script) for script in scripts],
        data=_safe(_data(part)),
        groups=groups,
        counts=[(kind, len(members)) for kind, members in groups],
        near=_near(part),
        path=_path(part),
        few=_FEW,
        roles=_ROLES,
        libraries=" and ".join(f"{one.name} {one.version}" for one in libraries()),
        licences=[one.licence for one in libraries()],
    )
    # A lone surrogate, which metadata may hold, is no text that a file can hold.
    return Page(html.encode("utf-8", "replace"), f"{policy}; frame-ancestors 'none'")


@cache
def _template() -> Template:
    try:
        import jinja2
    except ImportError as error:
        raise not_installed("the explorer", "jinja2", error) from error
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals.update(link=_link, plural=_plural, said=_said)
    return environment.from_string(_own("page.html.jinja"))


def _safe(text: str) -> Any:
    """Text of ours that is markup; raises ValueError for one that would end the element that it stands in."""
    from markupsafe import Markup

    lower = text.lower()
    if any(mark in lower for mark in ("</script", "</style", "<!--")):
        raise ValueError("a script or style of the explorer holds a mark that ends its element")
    return Markup(text)  # noqa: S704 - shipped with indexmill and checked, or escaped by _data


@cache
def _own(name: str) -> str:
    return (files("indexmill.explore") / "assets" / name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str], style: str) -> str:
    allowed = " ".join(_hash(script) for script in scripts)
    return f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    """The digest by which a policy names an inline element."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode()}'"


def _data(part: Part) -> str:
    """What the script draws, as JSON that is safe inside an element."""
    ends = np.array([(edge.source, edge.target) for edge in part.edges], dtype=np.int64).reshape(-1, 2)
    places = laid_out(len(part.nodes), ends).tolist()
    content = {
        "nodes": [
            {
                "id": node.id,
                "kind": node.kind,
                "label": node.label,
                "role": node.role,
                "size": _size(node),
                "x": x,
                "y": y,
            }
            for node, (x, y) in zip(part.nodes, places, strict=True)
        ],
        "edges": [[edge.source, edge.target, edge.kind, edge.text, int(edge.path)] for edge in part.edges],
    }
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _size(node: Node) -> float:
    """The radius of a node in the drawing: what is linked more is larger, and what was found stands out."""
    if node.role:
        return 11.0 if node.role in ("start", "hit") else 9.0
    if node.kind == "passage":
        return 3.5
    return round(min(9.0, 2.5 + 1.2 * math.log1p(node.links)), 2)


def _groups(part: Part) -> list[tuple[str, list[int]]]:
    """The positions of the nodes by kind, each in the order of the part."""
    by_kind: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for at, node in enumerate(part.nodes):
        by_kind.setdefault(node.kind, []).append(at)
    return [(kind, members) for kind, members in by_kind.items() if members]


def _near(part: Part) -> list[list[int]]:
    """The neighbours of each node in the part, those on the path first."""
    found: list[dict[int, None]] = [{} for _ in part.nodes]
    for source, target in _ends(part):
        found[source][target] = None
        found[target][source] = None
    return [list(one) for one in found]


def _path(part: Part) -> list[list[Step]]:
    """The steps of the retrieval, those that say the same but for where they lead together; each hit by itself."""
    found: dict[object, list[Step]] = {}
    for at, step in enumerate(part.path):
        key = (step.role, step.source, step.text) if step.role != "hit" else at
        found.setdefault(key, []).append(step)
    return list(found.values())


def _ends(part: Part) -> Iterator[tuple[int, int]]:
    for path in (True, False):
        yield from ((edge.source, edge.target) for edge in part.edges if edge.path is path)


def _link(node: Node) -> str:
    return "#node=" + quote(node.id.encode("utf-8", "replace"), safe=":")


def _plural(kind: str) -> str:
    return counted(2, kind.replace("_", " ")).partition(" ")[2]


def _said(node: Node) -> str:
    """How a node is linked in the whole index."""
    if node.kind == "entity":
        return f"Named by {counted(node.links, 'passage')} of the index."
    if node.kind == "community":
        return f"Holds {counted(node.links, 'node')} right below it."
    return f"Names {counted(node.links, 'entity')}."
