"""Pages of the web as documents: what is asked for and how often, what counts as changed or gone, hostile sites."""

from __future__ import annotations

import gzip
import itertools
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.sources import WebSettings
from tasks.stages.ingest.sources import sitemap as sitemap_module
from tasks.stages.ingest.sources import web_client as client_module
from tasks.stages.ingest.sources.source_interface import ChangedError, FileSource, SourceError
from tasks.stages.ingest.sources.web import WebSource, name_of
from tests.tasks.stages.ingest.sources.sites import Answer, Site, site

DATE = "Wed, 25 Nov 2026 10:00:00 GMT"


@pytest.fixture
def pages() -> Iterator[Site]:
    with site() as made:
        yield made


@pytest.fixture
def other() -> Iterator[Site]:
    with site() as made:
        yield made


_SCRATCH = itertools.count()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    """Opens places, each in the scratch folder of a run of its own, and closes them."""
    made: list[WebSource] = []

    def opened(scratch: Path | None = None, **settings: Any) -> WebSource:
        given = WebSettings(**{"delay_seconds": 0, **settings})
        made.append(WebSource(given, scratch or tmp_path / f"run-{next(_SCRATCH)}"))
        return made[-1]

    yield opened
    for one in made:
        one.close()


def tokens(place: FileSource, known: dict[str, str] | None = None) -> dict[str, str]:
    return {one.name: one.token for one in place.list(known or {})}


def read(place: FileSource, name: str, token: str) -> bytes:
    with place.read(name, token) as file:
        return file.read()


def urlset(*urls: str) -> str:
    listed = "".join(f"<url><loc>{url}</loc><lastmod>2026-11-25</lastmod></url>" for url in urls)
    return f'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{listed}</urlset>'


def index(*urls: str) -> str:
    return f"<sitemapindex>{''.join(f'<sitemap><loc> {url} </loc></sitemap>' for url in urls)}</sitemapindex>"


def test_a_page_is_asked_for_once_and_read_from_the_scratch_folder(pages: Site, make: Any, tmp_path: Path) -> None:
    pages.page("/a", "<p>one", "text/html; charset=utf-8", ETag='"1"', Last_Modified=DATE)
    place = make(urls=f"{pages.url}/a#part", contact="https://example.org/bot", scratch=tmp_path / "run")
    (entry,) = place.list({})
    assert (entry.name, entry.size, entry.modified) == (f"{pages.host}/a.html", 6, 1795600800.0)
    assert entry.details == {"url": f"{pages.url}/a"}
    other_process = make(urls=f"{pages.url}/a#part", contact="https://example.org/bot", scratch=tmp_path / "run")
    with other_process.read(entry.name, entry.token) as file:
        assert os.fstat(file.fileno()).st_size == 6
        assert file.read() == b"<p>one"
    assert [one.path for one in pages.asked] == ["/robots.txt", "/a"]
    assert pages.asked[1].headers["user-agent"] == "indexmill/0.1.0 (+https://example.org/bot)"
    assert isinstance(place, FileSource)


@pytest.mark.parametrize("validators", [{"ETag": 'W/"1"'}, {"Last_Modified": DATE}])
def test_a_page_that_has_not_changed_is_not_sent_again(pages: Site, make: Any, validators: dict[str, str]) -> None:
    pages.page("/a", "<p>one", **validators)
    first = tokens(make(urls=f"{pages.url}/a"))
    second = make(urls=f"{pages.url}/a")
    (entry,) = second.list(first)
    assert {entry.name: entry.token} == first
    assert entry.size == 6
    assert not any(second._bodies.iterdir())
    pages.page("/a", "<p>two", **{name: value.replace("1", "2") for name, value in validators.items()})
    changed = make(urls=f"{pages.url}/a")
    third = tokens(changed, first)
    assert third.keys() == first.keys()
    assert third != first
    assert read(changed, *next(iter(third.items()))) == b"<p>two"


def test_without_validators_the_bytes_decide(pages: Site, make: Any) -> None:
    pages.page("/a.txt", "one", "text/plain")
    first = tokens(make(urls=f"{pages.url}/a.txt"))
    assert tokens(make(urls=f"{pages.url}/a.txt"), first) == first
    pages.page("/a.txt", "two", "text/plain")
    assert tokens(make(urls=f"{pages.url}/a.txt"), first) != first


def test_everything_is_sent_again_where_nothing_is_known(pages: Site, make: Any) -> None:
    pages.page("/a", "<p>one", ETag='"1"')
    first = tokens(make(urls=f"{pages.url}/a"))
    again = make(urls=f"{pages.url}/a")
    assert tokens(again) == first
    assert read(again, *next(iter(first.items()))) == b"<p>one"
    assert "if-none-match" not in pages.asked[-1].headers


def test_a_machine_without_the_body_asks_again_and_notices_a_change(pages: Site, make: Any) -> None:
    pages.page("/a", "<p>one", ETag='"1"')
    listed = tokens(make(urls=f"{pages.url}/a"))
    ((name, token),) = listed.items()
    assert read(make(urls=f"{pages.url}/a"), name, token) == b"<p>one"
    pages.page("/a", "<p>two", ETag='"2"')
    with pytest.raises(ChangedError, match="has changed since it was listed"):
        make(urls=f"{pages.url}/a").read(name, token)


@pytest.mark.parametrize("status", [404, 410])
def test_a_page_that_is_gone_is_not_listed(pages: Site, make: Any, status: int) -> None:
    pages.page("/a", "<p>one")
    pages.answers["/b"] = Answer(status)
    place = make(urls=[f"{pages.url}/a", f"{pages.url}/b"])
    assert list(tokens(place)) == [f"{pages.host}/a.html"]
    assert place.warnings == [
        f"1 file is left out: their sites say that they are gone (404, 410), such as '{pages.url}/b'"
    ]


@pytest.mark.parametrize("status", [401, 403, 451, 204, 206])
def test_a_page_that_is_refused_is_listed_and_cannot_be_read(
    pages: Site, make: Any, tmp_path: Path, status: int
) -> None:
    pages.page("/a", "<p>one")
    pages.answers["/b"] = Answer(status)
    settings = {"urls": [f"{pages.url}/a", f"{pages.url}/b"], "scratch": tmp_path / "run"}
    listed = tokens(make(**settings))
    assert listed[f"{pages.host}/b.html"] == ""
    with pytest.raises(OSError, match=f"/b' answers {status}"):
        make(**settings).read(f"{pages.host}/b.html", "")


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_a_site_that_fails_ends_the_listing(pages: Site, make: Any, status: int) -> None:
    pages.page("/a", "<p>one")
    pages.answers["/b"] = Answer(status)
    with pytest.raises(SourceError, match=f"answers {status} after 5 attempts.*does not count as deleted"):
        make(urls=[f"{pages.url}/a", f"{pages.url}/b"]).list({})
    assert pages.paths().count("/b") == 5


def test_a_site_is_waited_for_as_long_as_it_asks(pages: Site, make: Any) -> None:
    fine = Answer(200, b"<p>one", {"Content-Type": "text/html"})
    pages.answers["/a"] = [Answer(429, headers={"Retry-After": "1"}), Answer(503), fine]
    assert len(tokens(make(urls=f"{pages.url}/a"))) == 1
    first, second, _ = (one for one in pages.asked if one.path == "/a")
    assert second.began - first.ended >= 0.95


def test_a_site_that_asks_for_hours_is_not_waited_for(pages: Site, make: Any) -> None:
    pages.answers["/a"] = Answer(429, headers={"Retry-After": "7200"})
    with pytest.raises(SourceError, match="asks to wait for 7,200 s: build later"):
        make(urls=f"{pages.url}/a").list({})
    assert pages.paths() == ["/a"]


def test_a_body_that_breaks_off_is_asked_for_again(pages: Site, make: Any) -> None:
    headers = {"Content-Type": "text/html"}
    pages.answers["/a"] = [
        Answer(200, b"<p>o", {**headers, "Content-Length": "6"}, cut=True),
        Answer(200, b"<p>one", headers),
    ]
    place = make(urls=f"{pages.url}/a")
    assert read(place, *next(iter(tokens(place).items()))) == b"<p>one"


def test_a_site_that_is_not_there_ends_the_listing(make: Any) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(SourceError, match=r"nothing may be read from it \(RFC 9309\)"):
        make(urls=f"http://127.0.0.1:{port}/a").list({})


def test_robots_are_respected(pages: Site, make: Any) -> None:
    pages.page("/robots.txt", "User-agent: *\nDisallow: /private\nDisallow: /*.pdf$\n", "text/plain")
    for path in ("/a", "/private/b", "/c.pdf"):
        pages.page(path, "<p>one")
    pages.answers["/moved"] = Answer(302, headers={"Location": "/private/b"})
    place = make(urls=[f"{pages.url}{path}" for path in ("/a", "/private/b", "/c.pdf", "/moved")])
    assert list(tokens(place)) == [f"{pages.host}/a.html"]
    assert sorted(pages.paths()) == ["/a", "/moved"]
    assert [one.partition(", such")[0] for one in place.warnings] == ["3 files are left out: robots.txt disallows them"]


@pytest.mark.parametrize(
    ("answer", "read_anyway"),
    [(Answer(403), True), (Answer(404), True), (Answer(500), False), (Answer(429), False)],
)
def test_a_robots_file_that_cannot_be_read_is_taken_as_the_standard_says(
    pages: Site, make: Any, answer: Answer, read_anyway: bool
) -> None:
    pages.page("/a", "<p>one")
    pages.answers["/robots.txt"] = answer
    place = make(urls=f"{pages.url}/a")
    if read_anyway:
        assert len(tokens(place)) == 1
        return
    with pytest.raises(SourceError, match="nothing may be read from it"):
        place.list({})
    assert pages.paths() == []


@pytest.mark.slow
def test_requests_to_a_host_come_one_at_a_time_with_a_rest_between(pages: Site, make: Any, tmp_path: Path) -> None:
    pages.page("/robots.txt", "User-agent: indexmill\nCrawl-delay: 0.2\n", "text/plain")
    for number in range(3):
        pages.page(f"/{number}", "<p>one")
    urls = [f"{pages.url}/{number}" for number in range(3)]
    places = [make(urls=url, scratch=tmp_path / "run", delay_seconds=0.1) for url in urls]
    threads = [threading.Thread(target=place.list, args=({},)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asked = sorted((one for one in pages.asked if one.path != "/robots.txt"), key=lambda one: one.began)
    assert len(asked) == 3
    assert all(after.began - before.ended > 0.15 for before, after in itertools.pairwise(asked))


def test_a_site_that_wants_minutes_between_pages_is_left_to_people(pages: Site, make: Any) -> None:
    pages.page("/robots.txt", "User-agent: *\nCrawl-delay: 86400\n", "text/plain")
    with pytest.raises(SourceError, match="asks for 86400 seconds"):
        make(urls=f"{pages.url}/a").list({})


def test_redirects_are_followed_and_the_name_stays(pages: Site, make: Any) -> None:
    pages.answers["/a"] = Answer(301, headers={"Location": "b?x=1#part"})
    pages.answers["/b?x=1"] = Answer(307, headers={"Location": f"{pages.url}/c"})
    pages.page("/c", "<p>one")
    assert list(tokens(make(urls=f"{pages.url}/a"))) == [f"{pages.host}/a.html"]


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://example.org/x", "http://me:pw@example.org/", "http://["]
)
def test_a_redirect_away_from_the_web_is_refused(pages: Site, make: Any, tmp_path: Path, target: str) -> None:
    pages.answers["/a"] = Answer(302, headers={"Location": target})
    place = make(urls=f"{pages.url}/a")
    (entry,) = place.list({})
    with pytest.raises(OSError, match="is not a web URL"):
        place.read(entry.name, entry.token)


@pytest.mark.parametrize("host", ["localhost", "[::1]", "169.254.169.254", "10.0.0.1", "0x7f.1", "[::ffff:127.0.0.1]"])
def test_a_redirect_to_an_address_that_is_not_public_is_refused(pages: Site, make: Any, host: str) -> None:
    pages.answers["/a"] = Answer(302, headers={"Location": f"http://{host}/secret"})
    place = make(urls=f"{pages.url}/a")
    (entry,) = place.list({})
    with pytest.raises(OSError, match="not a public address"):
        place.read(entry.name, entry.token)


def test_a_name_that_leads_elsewhere_when_it_is_looked_up_again_is_refused(
    pages: Site, other: Site, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "is_public", lambda host: True)
    other.page("/secret", "<p>secret")
    pages.answers["/a"] = Answer(302, headers={"Location": f"{other.url}/secret"})
    place = make(urls=f"{pages.url}/a")
    (entry,) = place.list({})
    with pytest.raises(OSError, match="not a public address"):
        place.read(entry.name, entry.token)


def test_a_circle_of_redirects_ends(pages: Site, make: Any) -> None:
    pages.answers["/a"] = Answer(302, headers={"Location": "/a"})
    place = make(urls=f"{pages.url}/a")
    (entry,) = place.list({})
    with pytest.raises(OSError, match="redirected more than 5 times"):
        place.read(entry.name, entry.token)


def test_a_page_over_the_limit_is_refused_before_it_fills_the_disk(pages: Site, make: Any) -> None:
    sent = itertools.count()

    def endless() -> Iterator[bytes]:
        for _ in range(10_000):
            next(sent)
            yield b"x" * 10_000

    pages.answers["/a"] = Answer(200, endless, {"Content-Type": "text/html"})
    bomb = gzip.compress(b"\0" * 20_000_000, mtime=0)
    pages.answers["/b"] = Answer(200, bomb, {"Content-Type": "text/html", "Content-Encoding": "gzip"})
    twice = gzip.compress(bomb, mtime=0)
    pages.answers["/c"] = Answer(200, twice, {"Content-Type": "text/html", "Content-Encoding": "gzip, gzip"})
    place = make(urls=[f"{pages.url}/{one}" for one in "abc"], max_file_bytes=100_000)
    entries = list(place.list({}))
    said = []
    for entry in entries:
        with pytest.raises(OSError, match=r"\(max_file_bytes\)|was not requested") as refused:
            place.read(entry.name, entry.token)
        said.append("max_file_bytes" in str(refused.value))
    assert said == [True, True, False]
    assert next(sent) < 5_000
    assert not any(place._bodies.iterdir())


def test_the_encoding_that_a_server_states_is_listed(pages: Site, make: Any) -> None:
    pages.page("/a", "<p>\xfc\u20ac".encode("windows-1252"), "text/html; charset=ISO-8859-1")
    pages.page("/b", b"<p>\xff", "text/html; charset=zlib")
    place = make(urls=[f"{pages.url}/a", f"{pages.url}/b"])
    assert [entry.charset for entry in place.list({})] == ["cp1252", ""]
    assert [read(place, *one) for one in tokens(place).items()] == [b"<p>\xfc\x80", b"<p>\xff"]


def test_files_of_unknown_formats_are_not_downloaded(pages: Site, make: Any) -> None:
    pages.page("/a.png", b"x" * 1000, "image/png")
    pages.page("/b", b"x", "application/octet-stream")
    pages.page("/c.txt", b"x", "application/octet-stream")
    place = make(urls=[f"{pages.url}/{one}" for one in ("a.png", "b", "c.txt")])
    assert list(tokens(place)) == [f"{pages.host}/c.txt"]
    assert "2 files are left out: their format is unknown" in place.warnings[0]


def test_what_include_and_exclude_leave_out_is_not_asked_for(pages: Site, make: Any) -> None:
    for path in ("/docs/a", "/docs/b.txt", "/blog/c"):
        pages.page(path, "<p>one")
    urls = [f"{pages.url}{path}" for path in ("/docs/a", "/docs/b.txt", "/blog/c")]
    place = make(urls=urls, include="*/docs/**", exclude="*.txt")
    assert list(tokens(place)) == [f"{pages.host}/docs/a.html"]
    assert pages.paths() == ["/docs/a"]


def test_a_list_is_a_file_or_a_url(pages: Site, make: Any, tmp_path: Path) -> None:
    for path in ("/a", "/b"):
        pages.page(path, "<p>one")
    (tmp_path / "list.txt").write_text(f"# pages\n\n{pages.url}/a\n file://etc/passwd \n")
    private = "http://localhost:1/x"
    pages.page("/list", f"\ufeff{pages.url}/b\r\n{private}\r\n", "text/plain")
    place = make(lists=[str(tmp_path / "list.txt"), f"{pages.url}/list"])
    assert list(tokens(place)) == [f"{pages.host}/a.html", f"{pages.host}/b.html"]
    assert [one.partition(", such")[0] for one in place.warnings] == [
        "1 file is left out: a list contains a line that is not a web URL",
        "1 file is left out: a list from the web names a host that is not public",
    ]


def test_sitemaps_and_their_indexes(pages: Site, other: Site, make: Any) -> None:
    for number in range(4):
        pages.page(f"/{number}", "<p>one")
    pages.page("/sitemap.xml", index(f"{pages.url}/1.xml", f"{pages.url}/2.xml.gz", f"{other.url}/3.xml"))
    pages.page("/1.xml", urlset(f"{pages.url}/1", f"{pages.url}/2?a=1&amp;b=2", f"{other.url}/secret", "file:///etc/x"))
    pages.page("/2.xml.gz", gzip.compress(urlset(f"{pages.url}/3").encode(), mtime=0), "application/gzip")
    pages.page("/2?a=1&b=2", "<p>two")
    place = make(sitemaps=f"{pages.url}/sitemap.xml")
    assert list(tokens(place)) == [f"{pages.host}/{name}" for name in ("1.html", "2?a=1&b=2.html", "3.html")]
    assert other.asked == []
    assert [one.partition(", such")[0] for one in place.warnings] == [
        "2 files are left out: a sitemap names a page of another site",
        "1 file is left out: a sitemap names a sitemap of another site",
    ]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'<!DOCTYPE x [<!ENTITY a "aaaa">]><urlset><url><loc>&a;</loc></url></urlset>', "document type or entities"),
        (b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><urlset/>', "document type or entities"),
        (b"<urlset><url><loc>http://x/", "is not XML"),
        (b"<html><body>not found</body></html>", "begins with <html>"),
        (b"<urlset><url><loc>" + b"x" * 100_000 + b"</loc></url></urlset>", "more than 4096 characters"),
        (b"<urlset>" + b"<url>" * 1000, "nested more deeply"),
        (b"not a url", "is not a URL"),
        (b"\xff\xfe", "neither XML nor UTF-8"),
        (gzip.compress(b"<urlset/>", mtime=0)[:-9], "cut off"),
        (b"\x1f\x8bnonsense", "cannot be unpacked"),
    ],
)
def test_a_damaged_or_hostile_sitemap_ends_the_listing(pages: Site, make: Any, body: bytes, said: str) -> None:
    pages.page("/sitemap.xml", body, "application/xml")
    with pytest.raises(SourceError, match=said):
        make(sitemaps=f"{pages.url}/sitemap.xml").list({})


def test_a_sitemap_that_unpacks_to_too_much_ends_the_listing(
    pages: Site, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sitemap_module, "LARGEST", 1 << 20)
    pages.page("/sitemap.xml.gz", gzip.compress(b" " * (100 << 20), mtime=0), "application/gzip")
    with pytest.raises(SourceError, match="larger than 1 MiB"):
        make(sitemaps=f"{pages.url}/sitemap.xml.gz").list({})


def test_indexes_without_end_and_too_many_pages_end_the_listing(pages: Site, make: Any) -> None:
    for number in range(6):
        pages.page(f"/{number}.xml", index(f"{pages.url}/{number + 1}.xml"))
    with pytest.raises(SourceError, match="more than 3 levels"):
        make(sitemaps=f"{pages.url}/0.xml").list({})
    pages.page("/many.xml", urlset(*(f"{pages.url}/{number}" for number in range(11))))
    with pytest.raises(SourceError, match=r"more than 10 pages are named \(max_files\)"):
        make(sitemaps=f"{pages.url}/many.xml", max_files=10).list({})


@pytest.mark.parametrize("status", [404, 403, 500])
def test_a_sitemap_that_is_not_there_ends_the_listing(pages: Site, make: Any, status: int) -> None:
    pages.answers["/sitemap.xml"] = Answer(status)
    with pytest.raises(SourceError, match=f"answers {status}"):
        make(sitemaps=f"{pages.url}/sitemap.xml").list({})


def test_an_empty_sitemap_is_not_taken_for_a_site_without_pages(pages: Site, make: Any) -> None:
    pages.page("/sitemap.xml", urlset())
    with pytest.raises(SourceError, match="names no page"):
        make(sitemaps=f"{pages.url}/sitemap.xml").list({})


@pytest.mark.parametrize(
    ("url", "suffix", "name"),
    [
        ("https://example.org/", ".html", "example.org/index.html"),
        ("https://example.org/docs/", ".html", "example.org/docs/index.html"),
        ("https://example.org:8443/a.pdf", ".pdf", "example.org:8443/a.pdf"),
        ("https://example.org/a.php", ".html", "example.org/a.php.html"),
        ("https://example.org/a.txt?b=c/d", ".html", "example.org/a.txt?b=c%2Fd.txt"),
        ("https://example.org/%C3%BC%20%7Ea/%2e%2e/x", ".html", "example.org/\xfc ~a/%2E./x.html"),
        ("https://example.org/a//.git/b%2fc%00", ".html", "example.org/a/%2F/%2Egit/b%2Fc%00.html"),
        ("https://example.org/%FFa%5C", ".html", "example.org/%FFa%5C.html"),
    ],
)
def test_names_are_readable_relative_and_injective(url: str, suffix: str, name: str) -> None:
    assert name_of(url, suffix) == name


def test_a_long_url_has_a_short_name_of_its_own() -> None:
    one, other = (name_of(f"https://example.org/{'x' * 3000}{end}", ".html") for end in "ab")
    assert one != other
    assert one.endswith(".html")
    assert len(one) < 1000


def test_two_pages_of_one_name_are_both_kept(pages: Site, make: Any) -> None:
    pages.page("/a/", "<p>one")
    pages.page("/a/index.html", "<p>two")
    listed = tokens(make(urls=[f"{pages.url}/a/", f"{pages.url}/a/index.html"]))
    assert len(listed) == 2
    assert f"{pages.host}/a/index.html" in listed


@pytest.mark.parametrize("url", ["file:///etc/passwd", "example.org", "https://me:hidden@example.org/", "ftp://x/y"])
def test_what_is_no_url_of_the_web_is_refused_without_its_secrets(make: Any, url: str) -> None:
    with pytest.raises(SourceError, match="is not a web URL") as refused:
        make(urls=url)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("token", ["", "[]", '["http://x/","","","../../etc/passwd",1,""]', "[1,2,3,4,5,6]"])
def test_a_token_of_no_listing_leads_nowhere(pages: Site, make: Any, token: str) -> None:
    with pytest.raises(OSError, match="was not listed"):
        make(urls=f"{pages.url}/a").read("a.html", token)


def test_cookies_are_not_kept(pages: Site, make: Any) -> None:
    pages.page("/a", "<p>one", Set_Cookie="seen=1")
    pages.page("/b", "<p>two")
    make(urls=[f"{pages.url}/a", f"{pages.url}/b"]).list({})
    assert all("cookie" not in one.headers for one in pages.asked)
