"""Polite requests to web sites: one at a time to a host, as robots.txt allows, with retries, to public addresses only.

Locks on files in the run's scratch folder serialise the requests to a host among the processes of this machine.
Redirects are followed here: each target must be http or https and, except on the requested host, a public address.
Otherwise a page could make the build publish files of this machine or its network.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import ipaddress
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

import httpx2

from indexmill import __version__
from indexmill.models import http_logs
from indexmill.models.http_failures import retry_after
from tasks.stages.ingest.sources.file_names import shown, shown_error
from tasks.stages.ingest.sources.robots import ALLOW_ALL, LARGEST, Robots, parse_robots
from tasks.stages.ingest.sources.source_interface import SourceError

T = TypeVar("T")

_AGENT = "indexmill"
_HOPS = 5
"""The maximum number of redirects, as RFC 9309 sets it for robots.txt."""
_ATTEMPTS = 5
_FIRST_WAIT = 1.0
_LONGEST_WAIT = 120.0
"""The maximum number of seconds that a site may ask to wait before the next request."""
_LONGEST_DELAY = 60.0
_LONGEST_BODY = 600.0
"""The maximum number of seconds until a body has arrived."""
_MOVED = frozenset({301, 302, 303, 307, 308})
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_ENCODINGS = frozenset({"", "identity", "gzip", "x-gzip", "deflate"})
"""Accepted encodings. Other encodings, and combinations, can expand a piece of the response a million times."""
_PORTS = {"http": 80, "https": 443}


class DisallowedError(Exception):
    """robots.txt disallows a page."""


class RefusedError(Exception):
    """A single page cannot be read; the message says why."""


class _BusyError(Exception):
    """The site may answer later. after: the number of seconds that the site asks to wait; None if it states none."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class WebClient:
    """The HTTP client of one web source. Thread-safe."""

    def __init__(self, delay: float, contact: str, scratch: Path) -> None:
        http_logs.silence()
        self._delay, self._turns = delay, scratch / "web-turns"
        self._turns.mkdir(parents=True, exist_ok=True)
        self._robots: dict[str, Robots] = {}
        self._robots_lock = threading.Lock()
        self._direct = not urllib.request.getproxies()
        self._client = httpx2.Client(
            headers={
                "User-Agent": f"{_AGENT}/{__version__}" + (f" (+{contact})" if contact else ""),
                "Accept": "*/*",
                "Accept-Encoding": "gzip, deflate",
            },
            timeout=httpx2.Timeout(30.0, connect=10.0),
            follow_redirects=False,
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(
        self,
        url: str,
        receive: Callable[[httpx2.Response], T],
        headers: Mapping[str, str] | None = None,
        *,
        robots: bool = True,
    ) -> T:
        """Request a URL, follow redirects, and return the result of `receive`, which is called again after a failure.

        Raises DisallowedError, RefusedError, or SourceError if the site fails repeatedly.
        """
        start = url
        for _ in range(_HOPS + 1):
            rules = self.robots(url) if robots else ALLOW_ALL
            if not rules.allows(url):
                raise DisallowedError(url)
            answer = self._patiently(url, start, receive, headers or {}, max(self._delay, rules.delay))
            if not isinstance(answer, _Moved):
                return answer
            url = self._target(start, url, answer.location)
        raise RefusedError(f"{shown(start)} is redirected more than {_HOPS} times")

    def robots(self, url: str) -> Robots:
        """Return the robots.txt rules of a page's site. Raises SourceError if the site does not return them."""
        site = site_of(url)
        with self._robots_lock:
            rules = self._robots.get(site)
        if rules is None:
            rules = self._ask_robots(site)
            with self._robots_lock:
                self._robots[site] = rules
        return rules

    def _ask_robots(self, site: str) -> Robots:
        def receive(response: httpx2.Response) -> Robots:
            if response.status_code != 200:  # 4xx: "the crawler MAY access any resources"
                return ALLOW_ALL
            return parse_robots(body(response, LARGEST, cut=True).decode("utf-8", "replace"), _AGENT)

        try:
            rules = self.get(f"{site}/robots.txt", receive, robots=False)
        except RefusedError:
            return ALLOW_ALL
        except SourceError as error:
            raise SourceError(
                f"{error}. Until a site returns its robots.txt, nothing may be read from it (RFC 9309)"
            ) from error
        if rules.delay > _LONGEST_DELAY:
            raise SourceError(
                f"{site}/robots.txt asks for {rules.delay:g} seconds between two requests, more than the "
                f"maximum of {_LONGEST_DELAY:g}: leave the site out, or ask its owner"
            )
        return rules

    def _patiently(
        self, url: str, start: str, receive: Callable[[httpx2.Response], T], headers: Mapping[str, str], delay: float
    ) -> T | _Moved:
        wait = _FIRST_WAIT
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._once(url, start, receive, headers, delay)
            except (_BusyError, httpx2.TransportError) as error:
                message = str(error) if isinstance(error, _BusyError) else f"does not answer ({shown_error(error)})"
                after = error.after if isinstance(error, _BusyError) else None
                if after is not None and after > _LONGEST_WAIT:
                    raise SourceError(
                        f"{shown(url)} {message}, and asks to wait for {after:,.0f} s: build later"
                    ) from error
                if attempt == _ATTEMPTS:
                    raise SourceError(
                        f"{shown(url)} {message} after {_ATTEMPTS} attempts: check the URL and the network, or build "
                        "later; a page that cannot be fetched does not count as deleted"
                    ) from error
                time.sleep(wait if after is None else after)
                wait *= 2
            except httpx2.DecodingError as error:
                raise RefusedError(f"{shown(url)} cannot be decompressed") from error
            except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, UnicodeError) as error:
                raise RefusedError(f"{shown(url)} is not a URL that can be requested") from error
        raise SourceError(f"{shown(url)} was not requested")

    def _once(
        self, url: str, start: str, receive: Callable[[httpx2.Response], T], headers: Mapping[str, str], delay: float
    ) -> T | _Moved:
        with self._turn(url, delay):
            self._client.cookies.clear()  # a page must not depend on earlier requests
            with self._client.stream("GET", url, headers=dict(headers)) as response:
                if response.status_code in _BUSY:
                    after = retry_after(response.headers, time.time())
                    raise _BusyError(f"answers {response.status_code}", after)
                if response.status_code in _MOVED and (location := response.headers.get("location")):
                    return _Moved(location)
                if self._direct and not _same_host(start, url):
                    _check_peer(response, url)
                return receive(response)

    @contextlib.contextmanager
    def _turn(self, url: str, delay: float) -> Iterator[None]:
        """Hold a site's lock for a request, at least `delay` seconds after this machine's last request to it."""
        name = hashlib.sha256(site_of(url).encode()).hexdigest()[:32]
        with (self._turns / name).open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            with contextlib.suppress(ValueError):
                time.sleep(min(max(0.0, float(file.read()) + delay - time.monotonic()), delay))
            try:
                yield
            finally:
                file.truncate(0)
                file.write(repr(time.monotonic()))
                file.flush()

    def _target(self, start: str, url: str, location: str) -> str:
        try:
            target = normal_url(urljoin(url, location))
        except ValueError:
            target = None
        if target is None:
            raise RefusedError(f"{shown(start)} redirects to {shown(location)}, which is not a web URL")
        if not _same_host(start, target) and not is_public(urlsplit(target).hostname or ""):
            raise RefusedError(
                f"{shown(start)} redirects to {shown(target)}, which is not a public address; if you trust it, give it"
            )
        return target


class _Moved:
    def __init__(self, location: str) -> None:
        self.location = location


def body(response: httpx2.Response, most: int, *, cut: bool = False) -> bytes:
    """Return the body of a response. A body longer than `most` bytes is cut, or raises RefusedError."""
    content = bytearray()
    for chunk in chunks(response):
        content += chunk
        if len(content) > most:
            if cut:
                return bytes(content[:most])
            raise RefusedError(f"{shown(str(response.url))} is over {most:,} bytes")
    return bytes(content)


def chunks(response: httpx2.Response) -> Iterator[bytes]:
    """Yield a body in decompressed pieces. Raises RefusedError if it takes too long, or its encoding is unknown."""
    packed = response.headers.get("content-encoding", "").strip().lower()
    if packed not in _ENCODINGS:
        raise RefusedError(f"{shown(str(response.url))} has content encoding {shown(packed)}, which was not requested")
    until = time.monotonic() + _LONGEST_BODY
    for chunk in response.iter_bytes():
        if time.monotonic() > until:
            raise RefusedError(f"{shown(str(response.url))} takes longer than {_LONGEST_BODY:g} s to arrive")
        yield chunk


def normal_url(url: str) -> str | None:
    """Return a normalised web URL without its fragment; None for any other URL, and for URLs with credentials."""
    try:
        split = urlsplit(url.strip())
        port = split.port
        host = (split.hostname or "").encode("idna").decode("ascii").lower() if split.hostname else ""
    except (ValueError, UnicodeError):
        return None
    if split.scheme not in _PORTS or not host or "@" in split.netloc:
        return None
    at = f"[{host}]" if ":" in host else host
    at += f":{port}" if port not in (None, _PORTS[split.scheme]) else ""
    path = quote(split.path or "/", safe="/%:@!$&'()*+,;=~")
    query = quote(split.query, safe="/%:@!$&'()*+,;=~?")
    return urlunsplit((split.scheme, at, path, query, ""))


def site_of(url: str) -> str:
    """Return a URL's scheme, host and port."""
    split = urlsplit(url)
    return f"{split.scheme}://{split.netloc}"


def is_public(host: str) -> bool:
    """Return whether all addresses of a host are public."""
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)}
    except (OSError, UnicodeError):
        return False
    return bool(addresses) and all(map(_is_global, addresses))


def _is_global(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = getattr(parsed, "ipv4_mapped", None) or getattr(parsed, "sixtofour", None)
    return parsed.is_global and not parsed.is_multicast and (inner is None or inner.is_global)


def _check_peer(response: httpx2.Response, url: str) -> None:
    """Raise RefusedError for a response from a non-public address: the host may have resolved to another address."""
    stream = response.extensions.get("network_stream")
    peer = stream.get_extra_info("server_addr") if stream is not None else None
    if not peer or not _is_global(str(peer[0])):
        raise RefusedError(f"a redirect led to {shown(url)}, which is not a public address")


def _same_host(first_url: str, second_url: str) -> bool:
    """Return whether two URLs have the same host, and the same port or only the default ports of http and https."""
    first, second = urlsplit(first_url), urlsplit(second_url)
    if first.hostname != second.hostname:
        return False
    ports = {first.port or _PORTS[first.scheme], second.port or _PORTS[second.scheme]}
    return len(ports) == 1 or ports <= set(_PORTS.values())
