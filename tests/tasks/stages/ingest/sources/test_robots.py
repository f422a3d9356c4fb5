"""The rules of robots.txt, by the examples of RFC 9309."""

from __future__ import annotations

import time

import pytest

from tasks.stages.ingest.sources.robots import ALLOW_ALL, Robots, parse_robots

RFC = """
User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
"""


@pytest.mark.parametrize(
    ("agent", "path", "allowed"),
    [
        ("anybot", "/example/page.html", False),
        ("anybot", "/a/b.gif", False),
        ("anybot", "/a/b.gif?x", True),
        ("anybot", "/publications/x", True),
        ("FooBot", "/example/page.html", True),
        ("foobot", "/example/page.htm", False),
        ("barbot", "/example/page.html", False),
        ("bazbot", "/example/page.html", False),
        ("bazbot", "/other", True),
        ("quxbot", "/example/page.html", True),
    ],
)
def test_the_examples_of_the_standard(agent: str, path: str, allowed: bool) -> None:
    assert parse_robots(RFC, agent).allows(f"https://example.org{path}") is allowed


@pytest.mark.parametrize(
    ("rules", "path", "allowed"),
    [
        ("Disallow: /\nAllow: /p", "/page", True),  # the longest wins ...
        ("Allow: /folder\nDisallow: /folder", "/folder/page", True),  # ... and of two, what allows
        ("Disallow:", "/x", True),
        ("Disallow: /a%3cd.html", "/a%3Cd.html", False),
        ("Disallow: /%7Ejoe", "/~joe/x", False),
        ("Disallow: /\u30c4", "/%E3%83%84", False),
        ("Disallow: /*/b*c$", "/a/b/x/c", False),
        ("Disallow: /*/b*c$", "/a/b/x/cd", True),
        ("Disallow: /fish*.php", "/fishheads/catfish.php?x=1", False),
        ("Disallow: /x$", "/x/y", True),
        ("Disallow: /a*a$", "/a", True),
        ("Disallow: /robots.txt", "/robots.txt", True),
        ("Disallow: /x # a comment", "/x", False),
        ("nonsense\n: \nDisallow /x\nDisallow: /y", "/y", False),
    ],
)
def test_rules(rules: str, path: str, allowed: bool) -> None:
    assert parse_robots(f"user-agent: indexmill/2.0\n{rules}", "indexmill").allows(f"http://x{path}") is allowed


def test_the_longest_delay_of_our_group_counts() -> None:
    text = "User-agent: *\nCrawl-delay: 9\n\nUser-agent: indexmill\nCrawl-delay: 0.5\nCrawl-delay: 2\nDisallow: /x\n"
    assert parse_robots(text, "indexmill").delay == 2
    assert parse_robots(text, "other").delay == 9
    assert [parse_robots(f"user-agent: *\ncrawl-delay: {odd}", "x").delay for odd in ("nan", "-1", "inf", "x")] == [
        0
    ] * 4
    assert parse_robots("", "indexmill") == ALLOW_ALL


def test_hostile_rules_cost_no_more_than_their_length() -> None:
    robots = parse_robots("user-agent: *\n" + f"disallow: /{'*a' * 5_000}b$\n", "x")
    began = time.process_time()
    assert robots.allows(f"http://x/{'a' * 20_000}")
    assert time.process_time() - began < 2
    many = parse_robots("user-agent: *\n" + "".join(f"disallow: /{n}x\n" for n in range(50_000)), "x")
    assert isinstance(many, Robots)
    assert len(many.rules) == 10_000
