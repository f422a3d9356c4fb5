"""What a site's robots.txt asks of this program, by RFC 9309.

The parser of the standard library takes the first rule that fits and knows no wildcards; the RFC has the longest rule
win and lets rules contain `*` and `$`, which many sites use. `Crawl-delay` is no part of the RFC, and is kept to.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

LARGEST = 512_000
"""The bytes that are read: the RFC wants at least 500 KiB."""
_MOST_RULES = 10_000
_LINE = re.compile(r"\s*([A-Za-z-]+)\s*:\s*([^#]*)")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


@dataclass(frozen=True, slots=True)
class Robots:
    """The rules for this program: (path, allowed) in the order of precedence, and the seconds between requests."""

    rules: tuple[tuple[str, bool], ...] = ()
    delay: float = 0.0

    def allows(self, url: str) -> bool:
        """True if a page may be read."""
        split = urlsplit(url)
        path = _normal((split.path or "/") + (f"?{split.query}" if split.query else ""))
        return path == "/robots.txt" or next((allowed for rule, allowed in self.rules if _fits(path, rule)), True)


ALLOW_ALL = Robots()


def parse_robots(text: str, agent: str) -> Robots:
    """The rules of the groups that name an agent, of those for `*` where none does."""
    groups: dict[str, tuple[list[tuple[str, bool]], list[float]]] = {}
    named: list[str] = []
    in_rules = False
    for line in text.lstrip("\ufeff").splitlines():
        if not (found := _LINE.match(line)):
            continue
        key, value = found[1].lower(), found[2].strip()
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
    ordered = sorted(set(rules), key=lambda rule: (-len(rule[0]), not rule[1], rule[0]))  # of two, what allows
    return Robots(tuple(ordered), max(delays, default=0.0))


def _fits(path: str, rule: str) -> bool:
    """True if a rule fits the beginning of a path; in time that grows with their lengths alone."""
    anchored = rule.endswith("$")
    first, *others = rule.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    at = len(first)
    if not others:
        return not anchored or at == len(path)
    last = others.pop() if anchored else ""
    for piece in others:
        found = path.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return not anchored or (path.endswith(last) and len(path) - len(last) >= at)


def _normal(path: str) -> str:
    """A path with escapes in one form: as letters where they mean nothing else, in capitals otherwise."""
    quoted = "".join(
        letter if letter.isascii() else "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "replace"))
        for letter in path
    )

    def one(found: re.Match[str]) -> str:
        letter = chr(int(found[1], 16))
        return letter if letter in _UNRESERVED else found[0].upper()

    return _ESCAPE.sub(one, quoted)


def _agent(value: str) -> str:
    """The product token that a group names, without its version; or `*`."""
    found = re.match(r"[A-Za-z_-]+|\*", value)
    return found[0].lower() if found else ""


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0
