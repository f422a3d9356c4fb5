"""The rules of a site's robots.txt for this program (RFC 9309).

The standard library's parser uses the first matching rule and does not support wildcards. In the RFC the longest rule
wins, and rules may contain `*` and `$`, which many sites use. `Crawl-delay` is not part of the RFC, but is respected.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

LARGEST = 512_000
"""The maximum number of bytes to read: the RFC requires at least 500 KiB."""
_MOST_RULES = 10_000
_LINE = re.compile(r"\s*([A-Za-z-]+)\s*:\s*([^#]*)")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_ASCII = bytes(range(128))
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


@dataclass(frozen=True, slots=True)
class Robots:
    """The rules for this program: (path, allowed) in order of precedence, and the seconds between requests."""

    rules: tuple[tuple[str, bool], ...] = ()
    delay: float = 0.0

    def allows(self, url: str) -> bool:
        """Return whether a page may be read."""
        split = urlsplit(url)
        path = _normal((split.path or "/") + (f"?{split.query}" if split.query else ""))
        return path == "/robots.txt" or next((allowed for rule, allowed in self.rules if _fits(path, rule)), True)


ALLOW_ALL = Robots()


def parse_robots(text: str, agent: str) -> Robots:
    """Return the rules of the groups that name an agent, or of the groups for `*` if no group names it."""
    groups: dict[str, tuple[list[tuple[str, bool]], list[float]]] = {}
    named: list[str] = []
    in_rules = False
    for line in text.lstrip("\ufeff").splitlines():
        if not (match := _LINE.match(line)):
            continue
        key, value = match[1].lower(), match[2].strip()
        if key == "user-agent":
            if in_rules:
                named, in_rules = [], False
            named.append(_agent(value))
            groups.setdefault(named[-1], ([], []))
            continue
        if key not in ("allow", "disallow", "crawl-delay"):
            continue
        in_rules = True
        for name in named:
            rules, delays = groups[name]
            if key == "crawl-delay":
                delays.append(_seconds(value))
            elif value and len(rules) < _MOST_RULES:
                rules.append((_normal(value), key == "allow"))
    rules, delays = groups.get(agent.lower()) or groups.get("*") or ([], [])
    ordered = sorted(set(rules), key=lambda rule: (-len(rule[0]), not rule[1], rule[0]))  # ties: allow first
    return Robots(tuple(ordered), max(delays, default=0.0))


def _fits(path: str, rule: str) -> bool:
    """Return whether a rule matches the beginning of a path, in linear time."""
    anchored = rule.endswith("$")
    first, *others = rule.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    at = len(first)
    if not others:
        return not anchored or at == len(path)
    last = others.pop() if anchored else ""
    for piece in others:
        offset = path.find(piece, at)
        if offset < 0:
            return False
        at = offset + len(piece)
    return not anchored or (path.endswith(last) and len(path) - len(last) >= at)


def _normal(path: str) -> str:
    """Normalise the escapes of a path: decode unreserved characters, and write other escapes in capitals."""
    quoted = quote(path, safe=_ASCII, errors="replace")

    def normal_escape(match: re.Match[str]) -> str:
        letter = chr(int(match[1], 16))
        return letter if letter in _UNRESERVED else match[0].upper()

    return _ESCAPE.sub(normal_escape, quoted)


def _agent(value: str) -> str:
    """Return the product token of a `User-agent` line without its version, or `*`; empty for an invalid value."""
    match = re.match(r"[A-Za-z_-]+|\*", value)
    return match[0].lower() if match else ""


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0
