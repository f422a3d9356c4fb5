"""The explorer shows a reader what it may read, and nothing that only other documents say, by command and over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from indexmill import UNRESTRICTED, BadInput
from indexmill.explore.explorer_page import page_of
from indexmill.explore.neighbourhood import MOST_NODES, neighbourhood
from indexmill.retrieve.community_rows import Communities
from indexmill.retrieve.method_registry import METHODS, provided
from indexmill.serve.callers import add_token
from indexmill.serve.messages import ErrorResponse
from indexmill.snapshot import Snapshot
from tests.indexmill.rights.world import CANARIES, COUNT, GROUPS, SPELLINGS, group, leaks, readable, word
from tests.indexmill.running import Run
from tests.indexmill.serve.serving import Serving, serving

QUESTION = "Who built marrow bridge with Ada Marl?"
"""In no spelling of the corpus, as a page repeats it."""
READERS: Mapping[str, Sequence[str]] = {
    "nobody": (),
    "one": (group(3),),
    "half": ("half 1",),
    "unspelled": [group(number) for number in (0, 2, 7, 8)],
}


@pytest.mark.parametrize("reader", READERS)
def test_no_part_of_an_index_leaks(snapshot: Snapshot, reader: str) -> None:
    principals = READERS[reader]
    may = readable(principals)
    starts: list[dict[str, Any]] = [{}, {"entity": "Ada Marl"}, {"entity": "marrow bridge"}]
    starts += [{"question": QUESTION, "method": method} for method in METHODS]
    for start in starts:
        part = neighbourhood(snapshot, **start, nodes=MOST_NODES, principals=principals)
        assert part.nodes
        told = json.dumps(part.to_dict(), ensure_ascii=False)
        assert leaks(told, may) == set(), start
        assert part.totals["passage"] <= len(may) * 4
        if "method" not in start:
            assert leaks(page_of(part).html.decode(), may) == set()


def test_those_who_read_all_see_all(snapshot: Snapshot) -> None:
    part = neighbourhood(snapshot, nodes=MOST_NODES, principals=UNRESTRICTED)
    told = json.dumps(part.to_dict(), ensure_ascii=False)
    assert leaks(told, range(COUNT)) == set()
    names = [one for one, owners in CANARIES.items() if one.startswith(("perq", "plaq", "rawq"))]
    assert all(one in told.casefold() for one in names)
    everyone = neighbourhood(snapshot, nodes=MOST_NODES, principals=GROUPS)
    assert {node.id for node in everyone.nodes} == {node.id for node in part.nodes}
    assert part.totals["community"] > 0


def test_an_entity_of_hidden_documents_is_as_absent_as_one_that_is_not_there(snapshot: Snapshot) -> None:
    hidden = f"{word(3, 'per')} venn"
    assert neighbourhood(snapshot, entity=hidden, principals=[group(3)]).nodes
    messages = []
    for name in (hidden, "nosuchqname venn"):
        with pytest.raises(BadInput) as caught:
            neighbourhood(snapshot, entity=name, principals=())
        messages.append(str(caught.value).replace(repr(name), "it"))
        assert leaks(messages[-1], readable(())) == set()
    assert messages[0].partition(";")[0] == messages[1].partition(";")[0]


def test_a_name_is_not_shown_as_only_hidden_documents_write_it(snapshot: Snapshot) -> None:
    part = neighbourhood(snapshot, entity="marrow bridge", principals=READERS["unspelled"])
    assert part.nodes[0].label not in SPELLINGS[1:]
    assert neighbourhood(snapshot, entity="marrow bridge", principals=UNRESTRICTED).nodes[0].label == SPELLINGS[3]


def test_a_community_is_there_for_those_who_may_read_all_below_it(snapshot: Snapshot) -> None:
    held: Communities = provided(snapshot, "communities")
    ids = [held.label(row).id for row in range(len(held.parents))]
    for one in ids:
        assert neighbourhood(snapshot, community=one, principals=UNRESTRICTED).nodes[0].kind == "community"
    hidden = 0
    for one in ids:
        if all(leaks(text, readable(())) == set() for text in held.label(ids.index(one))):
            continue
        hidden += 1
        with pytest.raises(BadInput, match="there is no community"):
            neighbourhood(snapshot, community=one, principals=())
    assert hidden


def test_the_command_reads_as_the_group_it_names(run: Run, store: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = ("explore", "1", "--store", store, "-o", page, "--nodes", 200)
    assert run(*command) == 0
    assert "pass --as GROUP" in run.err
    assert leaks(page.read_text(encoding="utf-8"), readable(())) == set()
    assert run(*command, "--as", group(3)) == 0
    assert run.err == ""
    text = page.read_text(encoding="utf-8")
    assert leaks(text, readable([group(3)])) == set()
    assert word(3, "raw") in text


class Served:
    """A server of version 1, and the header of each caller."""

    def __init__(self, server: Serving, headers: Mapping[str, Mapping[str, str]]) -> None:
        self.server, self._headers = server, headers

    def get(self, reader: str, headers: Mapping[str, str] | None = None, **query: Any) -> httpx.Response:
        given = {**self._headers[reader], **(headers or {})}
        return self.server.client.get("/explore", params=query, headers=given)


@pytest.fixture(scope="module")
def served(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokens = tmp_path_factory.mktemp("tokens") / "tokens.json"
    headers = {name: {"authorization": f"Bearer {add_token(tokens, name, groups)}"} for name, groups in READERS.items()}
    with serving(store, "--snapshot", 1, "--tokens", tokens, "--max-question", 200) as server:
        yield Served(server, headers)


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["nobody", "half"])
def test_a_page_is_that_of_the_library_under_the_rights_of_the_token(
    served: Served, snapshot: Snapshot, reader: str
) -> None:
    for start in ({}, {"entity": "Ada Marl"}, {"question": QUESTION, "method": "tri_graph"}):
        response = served.get(reader, **start, nodes=80)
        assert response.status_code == 200
        part = neighbourhood(snapshot, **start, nodes=80, principals=READERS[reader])  # type: ignore[arg-type]
        assert response.content == page_of(part).html
        assert leaks(response.text, readable(READERS[reader])) == set()
        assert response.headers["content-security-policy"] == page_of(part).policy
        assert response.headers["content-security-policy"].endswith("frame-ancestors 'none'")
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-content-type-options"] == "nosniff"
    (line, *_) = served.server.requests("/explore")
    assert line["version"] == 1
    assert QUESTION not in json.dumps(served.server.log)


@pytest.mark.slow
def test_a_page_needs_a_token_in_the_header_and_nowhere_else(served: Served) -> None:
    token = served._headers["half"]["authorization"].removeprefix("Bearer ")
    for response in (
        served.server.client.get("/explore"),
        served.server.client.get("/explore", params={"token": token}),
        served.server.client.get("/explore", headers={"cookie": f"authorization=Bearer {token}; token={token}"}),
    ):
        assert response.status_code == 401
        assert "html" not in response.headers["content-type"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ({"entity": "nosuchqname"}, 400, "there is no entity 'nosuchqname'"),
        ({"community": "x"}, 400, "there is no community"),
        ({"entity": "Ada Marl", "question": "x"}, 400, "an entity and a question are given"),
        ({"nodes": 0}, 400, "nodes:"),
        ({"nodes": 2001}, 400, "nodes:"),
        ({"nodes": "many"}, 400, "nodes:"),
        ({"nodes": [1, 2]}, 400, "nodes: given twice"),
        ({"unknown": 1}, 400, "unknown:"),
        ({"method": "dense"}, 400, "only determines how a question's hits are retrieved"),
        ({"question": "x", "method": "nothing"}, 400, "nothing"),
        ({"question": "x" * 201}, 400, "at most 200"),
    ],
)
def test_wrong_addresses_are_told_what_to_do(served: Served, query: dict[str, Any], status: int, said: str) -> None:
    response = served.get("half", **query)
    error = ErrorResponse.model_validate_json(response.content).error
    assert (response.status_code, said in error.message) == (status, True), error.message
    assert "/rights" not in error.message  # the path of the store


@pytest.mark.slow
def test_other_sites_can_link_to_a_page_and_not_load_it(served: Served) -> None:
    cross = {"sec-fetch-site": "cross-site"}
    assert served.get("half", {**cross, "sec-fetch-dest": "document"}).status_code == 200
    for kind in ("image", "iframe", "script", "empty"):
        assert served.get("half", {**cross, "sec-fetch-dest": kind}).status_code == 403
    assert served.get("half", {"sec-fetch-site": "same-origin", "sec-fetch-dest": "empty"}).status_code == 200


@pytest.mark.slow
def test_the_document_of_the_api_lists_what_an_address_may_say(served: Served) -> None:
    found = served.server.client.get("/openapi.json").json()["paths"]["/explore"]["get"]
    assert {one["name"] for one in found["parameters"]} == {"entity", "community", "question", "method", "nodes"}
    assert "text/html" in found["responses"]["200"]["content"]
    assert found["security"] == [{"token": []}]
