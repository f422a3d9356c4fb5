"""Rendering a subgraph of an index as one self-contained HTML page.

Everything is inlined: the libraries, the style, the data, the texts. The content security policy allows the scripts and
the style by their digests, and nothing else, not even requests. Text of documents never becomes markup: Jinja escapes
it, the script inserts it as text, and in the data every ``<`` is escaped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import numpy as np

from indexmill.explore.node_layout import node_positions
from indexmill.explore.subgraph import KINDS, Node, RetrievalStep, Subgraph
from indexmill.explore.vendor_files import libraries
from indexmill.store.pages import inline_digest, page_environment
from indexmill.text.counted import counted

if TYPE_CHECKING:
    from jinja2 import Template

GENERATOR = "indexmill explore"
"""The content of the page's ``<meta name="generator">``; only files that contain it are overwritten."""

_FEW = 12  # the maximum neighbours of a node that the page lists without a script; the script lists more

_ROLES = {"start": "start", "seed": "named by the question", "bridge": "on the path", "through": "led to a hit"}


class Page(NamedTuple):
    """An HTML page and the security policy to serve it with; a ``meta`` element cannot express all its directives."""

    html: bytes
    policy: str


def page_of(subgraph: Subgraph) -> Page:
    """Render a subgraph; equal subgraphs give equal bytes. Raises ModelUnavailable if Jinja is not installed."""
    scripts = [*(library.script for library in libraries()), _asset("explorer.js")]
    style = _asset("explorer.css")
    policy = _policy(scripts, style)
    groups = _groups(subgraph)
    html = _template().render(
        part=subgraph,
        generator=GENERATOR,
        policy=policy,
        style=_safe(style),
        scripts=[_safe(script) for script in scripts],
        data=_safe(_data(subgraph)),
        groups=groups,
        counts=[(kind, len(members)) for kind, members in groups],
        near=_near(subgraph),
        path=_path(subgraph),
        few=_FEW,
        roles=_ROLES,
        libraries=" and ".join(f"{library.name} {library.version}" for library in libraries()),
        licences=[library.licence for library in libraries()],
    )
    # Metadata may contain a lone surrogate, which UTF-8 cannot encode.
    return Page(html.encode("utf-8", "replace"), f"{policy}; frame-ancestors 'none'")


@cache
def _template() -> Template:
    environment = page_environment("the explorer")
    environment.globals.update(link=_link, plural=_plural, link_summary=_link_summary)
    return environment.from_string(_asset("page.html.jinja"))


def _safe(text: str) -> Any:
    """Mark text of the explorer itself as markup; raises ValueError if it would end its element."""
    from markupsafe import Markup

    lower = text.lower()
    if any(mark in lower for mark in ("</script", "</style", "<!--")):
        raise ValueError("a script or style of the explorer contains markup that ends its element")
    return Markup(text)  # noqa: S704 - shipped with indexmill and checked, or escaped by _data


@cache
def _asset(name: str) -> str:
    return (files("indexmill.explore") / "assets" / name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str], style: str) -> str:
    allowed, styles = " ".join(map(inline_digest, scripts)), inline_digest(style)
    return f"default-src 'none'; script-src {allowed}; style-src {styles}; base-uri 'none'; form-action 'none'"


def _data(subgraph: Subgraph) -> str:
    """Return the data for the script as JSON that is safe inside an element."""
    ends = np.array([(edge.source, edge.target) for edge in subgraph.edges], dtype=np.int64).reshape(-1, 2)
    positions = node_positions(len(subgraph.nodes), ends).tolist()
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
            for node, (x, y) in zip(subgraph.nodes, positions, strict=True)
        ],
        "edges": [[edge.source, edge.target, edge.kind, edge.text, int(edge.path)] for edge in subgraph.edges],
    }
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _size(node: Node) -> float:
    """Return the radius of a node in the drawing: larger with more links, and largest on the path."""
    if node.role:
        return 11.0 if node.role in ("start", "hit") else 9.0
    if node.kind == "passage":
        return 3.5
    return round(min(9.0, 2.5 + 1.2 * math.log1p(node.links)), 2)


def _groups(subgraph: Subgraph) -> list[tuple[str, list[int]]]:
    by_kind: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for at, node in enumerate(subgraph.nodes):
        by_kind.setdefault(node.kind, []).append(at)
    return [(kind, members) for kind, members in by_kind.items() if members]


def _near(subgraph: Subgraph) -> list[list[int]]:
    """Return the neighbours of each node in the subgraph; neighbours along the path come first."""
    neighbours: list[dict[int, None]] = [{} for _ in subgraph.nodes]
    for edge in sorted(subgraph.edges, key=lambda edge: not edge.path):
        neighbours[edge.source][edge.target] = None
        neighbours[edge.target][edge.source] = None
    return [list(node_neighbours) for node_neighbours in neighbours]


def _path(subgraph: Subgraph) -> list[list[RetrievalStep]]:
    """Return the retrieval's steps, grouped by role, source and text; each hit is a group of its own."""
    groups: dict[object, list[RetrievalStep]] = {}
    for at, step in enumerate(subgraph.path):
        key = (step.role, step.source, step.text) if step.role != "hit" else at
        groups.setdefault(key, []).append(step)
    return list(groups.values())


def _link(node: Node) -> str:
    return "#node=" + quote(node.id.encode("utf-8", "replace"), safe=":")


def _plural(kind: str) -> str:
    return counted(2, kind.replace("_", " ")).partition(" ")[2]


def _link_summary(node: Node) -> str:
    if node.kind == "entity":
        return f"Named by {counted(node.links, 'passage')} of the index."
    if node.kind == "community":
        return f"Holds {counted(node.links, 'node')} right below it."
    return f"Names {counted(node.links, 'entity')}."
