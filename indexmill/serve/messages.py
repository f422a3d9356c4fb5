"""The models of request and response bodies, from which the OpenAPI document is generated."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RetrieveRequest(_Request):
    """A question, and how to search."""

    question: Annotated[str, Field(description="The question. An empty question has no hits.")]
    method: Annotated[str | None, Field(description="The retrieval method; by default the best of the index.")] = None
    k: Annotated[int, Field(ge=1, description="The number of hits.")] = 5
    explain: Annotated[bool, Field(description="Explain why each hit was found.")] = False
    where: Annotated[
        dict[str, JsonValue] | list[str] | None,
        Field(
            description="Search only documents whose metadata match this filter.",
            examples=[{"year": {">=": 2024}, "lang": ["en", "de"]}],
        ),
    ] = None
    parameters: Annotated[
        dict[str, JsonValue] | None,
        Field(description="Settings of the method instead of the index's.", examples=[{"dense.title": 0.1}]),
    ] = None
    rerank: Annotated[bool, Field(description="Rerank the passages, if the server has a reranker.")] = False
    rerank_depth: Annotated[int, Field(ge=1, description="The number of first hits to rerank.")] = 50


class AnswerRequest(RetrieveRequest):
    """A question to answer from the hits."""

    stream: Annotated[
        bool, Field(description="Send the hits as soon as they are found, then the answer, as events.")
    ] = False
    token_budget: Annotated[
        int | None, Field(ge=1, description="Read only the best hits that fit into this many tokens.")
    ] = None
    answering: Annotated[dict[str, JsonValue] | None, Field(description="Settings of the method's answer mode.")] = None


class ExploreRequest(BaseModel):
    """The query of a page of the index, with at most one start."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    entity: Annotated[str | None, Field(description="An entity, by its name in any spelling, or by its id.")] = None
    community: Annotated[str | None, Field(description="A community, by its id.")] = None
    question: Annotated[str | None, Field(description="A question: the page shows the path of its retrieval.")] = None
    method: Annotated[str | None, Field(description="The retrieval method for the question.")] = None
    nodes: Annotated[int, Field(ge=1, le=2_000, description="The maximum number of nodes.")] = 300


class FoundBox(BaseModel):
    """A rectangle on a page, in points from the upper left corner of the page."""

    page: int
    left: float
    top: float
    right: float
    bottom: float


class FoundHit(BaseModel):
    """One piece of evidence."""

    kind: Annotated[str, Field(description="`passage`, or another kind of the method, such as a summary.")]
    id: str
    score: Annotated[float, Field(description="Higher is better; comparable within one response only.")]
    title: str
    text: str
    document_ids: Annotated[list[str], Field(description="The documents that the text comes from.")]
    tokens: int | None = None
    version: Annotated[int | None, Field(description="The version of the index; null for an exported folder.")] = None
    source: Annotated[str | None, Field(description="Where the document comes from.")] = None
    url: str | None = None
    section: Annotated[
        list[str], Field(description="The headings above the passage, the outermost first, without the title.")
    ] = []
    span: Annotated[
        tuple[int, int] | None, Field(description="The passage's offsets in the document's text, in code points.")
    ] = None
    page: Annotated[
        int | None, Field(description="The passage's first page in a file with pages, from 1; else absent.")
    ] = None
    pages: Annotated[tuple[int, int] | None, Field(description="The passage's first and last page.")] = None
    unit: Annotated[str | None, Field(description="What a page is: `page`, `slide`, `cell`, `sheet` or `chapter`.")] = (
        None
    )
    boxes: Annotated[list[FoundBox], Field(description="The blocks that contain the passage, if known.")] = []
    metadata: dict[str, Any] = {}
    explanation: dict[str, Any] | None = None


class Served(BaseModel):
    """The version that a response comes from."""

    version: Annotated[int | None, Field(description="The version's number; null for an exported folder.")]
    manifest: Annotated[str, Field(description="The SHA-256 of its manifest, which determines all its bytes.")]


class RetrieveResponse(Served):
    """The hits for a question, best first, all from one version."""

    method: str
    hits: list[FoundHit]


class AnswerResponse(RetrieveResponse):
    """An answer, and the hits that it is based on, all from one version."""

    answer: str
    found: Annotated[bool, Field(description="True if the hits contain the answer.")]
    model: Annotated[str | None, Field(description="The model that answered; null for a quotation.")]
    reasoning: str = ""
    context_tokens: int
    input_tokens: int
    output_tokens: int
    calls: int
    cautions: list[str] = []


class VersionRecord(BaseModel):
    """A version in the store."""

    version: int
    manifest: str
    created: str
    note: str = ""


class VersionRefused(BaseModel):
    """A version that failed its checks; the previous one keeps serving."""

    version: int | None


class VersionsResponse(BaseModel):
    """The versions of the store, and the one that is served."""

    served: Served
    methods: Annotated[list[str], Field(description="The retrieval methods of the served version, the best first.")]
    alias: Annotated[str | None, Field(description="The alias that the server follows.")] = None
    refused: Annotated[VersionRefused | None, Field(description="A version that the server rejected.")] = None
    versions: Annotated[list[VersionRecord], Field(description="Oldest first; empty for an exported folder.")]


class FoundDocument(Served):
    """A document, or a part of it."""

    document_id: str
    title: str
    text: str
    start: Annotated[int, Field(description="The text's offset in the document, in code points.")]
    length: Annotated[int, Field(description="The length of the document's whole text.")]
    source: str | None = None
    url: str | None = None
    metadata: dict[str, Any] = {}


class Health(BaseModel):
    """The state of the server."""

    status: str
    version: int | None = None


class _Error(BaseModel):
    code: Annotated[str, Field(description="The kind of error, for programs.")]
    message: Annotated[str, Field(description="What is wrong and what to do, for users.")]
    request_id: str


class ErrorResponse(BaseModel):
    """The reason why a request failed."""

    error: _Error
