"""Stage `community_reports`: the reports on a group of communities, and their vectors (ArchRAG, Algorithm 1, line 7).

`made_of` hashes all that a report is made of: a report is copied also to a community that has lost or won a member of
no weight. A community of one member has its member's text, and no model is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.models.llm import Request
from schemas.tables import (
    COMMUNITIES,
    COMMUNITY_MEMBERS,
    COMMUNITY_RELATIONS,
    COMMUNITY_SOURCES,
    DESCRIBED,
    RELATED,
)
from storage.tables import read_table
from tasks.core.estimate import Estimate, Expected, Range, Rows
from tasks.core.stage import Input, Output, Outputs, Part, Stage, worker_arg
from tasks.families.community_tree.report_writer import (
    WRITER,
    Member,
    Relation,
    Report,
    ReportInput,
    alone,
    chosen,
    community_text,
    extractive,
    most_output,
    parse,
    request,
)
from tasks.stages.embed.embed import TEXT_VECTORS
from tasks.stages.resolve.consolidate import entity_text
from tasks.stages.write.summarise import Extractive
from tasks.stages.write.text_writer import WriterSettings
from tasks.stages.write.written_rows import Row, WrittenRows

__all__ = ["STAGE", "ReportSettings", "estimate"]


@dataclass(frozen=True, kw_only=True)
class ReportSettings(WriterSettings):
    """texts: the tables that hold the members' texts, by shard or group. sources: the table COMMUNITY_SOURCES."""

    level: int
    summariser: Mapping[str, Any]
    encoder: Mapping[str, Any]
    texts: Mapping[str, Mapping[str, str]] = worker_arg()
    sources: str | None = worker_arg()

    def row_space(self) -> Mapping[str, Any]:
        """What writes reports, and the encoder."""
        return {**self.encoder, "summariser": self.summariser}


@dataclass(frozen=True)
class _Community:
    """A community, what its report is made of, and the hash of that."""

    id: str
    members: int
    made: ReportInput
    made_of: str


class _Reports(WrittenRows[ReportSettings, _Community, Report]):
    """The reports on a group of communities."""

    table, schema, counted_as = "communities", COMMUNITIES, "reports"
    vectors, with_ids = "community_vectors", True

    def __init__(self, part: Part[ReportSettings]) -> None:
        super().__init__(part)
        self._tokens: int = self.settings.summariser["tokens"]
        self._room: int = self.settings.summariser["input_tokens"]
        self._extractive = Extractive(self._tokens, self.settings.language)

    def read(self) -> Iterator[_Community]:
        """The communities in the order of their ids, with what their reports are made of."""
        members: dict[str, list[Member]] = {}
        table = self.inputs.table("members")
        texts = _members(self.inputs, table)
        for community, member in zip(table["community_id"].to_pylist(), table["member_id"].to_pylist(), strict=True):
            members.setdefault(community, []).append(texts[member])
        relations, level = _relations(self.inputs), self.settings.level
        for community, own in members.items():
            made = chosen(own, relations.get(community, ()), self._room, above=level > 1)
            yield _Community(community, len(own), made, made.digest(level, self.settings.summariser))

    def key_of(self, item: _Community) -> str:
        """The hash of all that a report is made of."""
        return item.made_of

    def own(self, item: _Community) -> Report | None:
        """What the only member of a community says of itself."""
        return alone(item.made.members[0]) if item.members == 1 else None

    @cached_property
    def _about(self) -> dict[str, list[str]]:
        """The ids that the texts of each community come from."""
        about: dict[str, list[str]] = {}
        if self.settings.sources is not None:
            table = read_table(self.inputs.store, self.settings.sources, COMMUNITY_SOURCES)
            for community, source in zip(*(table[name].to_pylist() for name in COMMUNITY_SOURCES.names), strict=True):
                about.setdefault(community, []).append(source)
        return about

    def request(self, item: _Community) -> Request:
        """The question for the report on a community of several members."""
        assert self.prompt is not None  # noqa: S101 - nothing is asked without one
        about = self._about.get(item.id, ())
        return request(item.made, self._tokens, self._room, self.prompt, about=about, makes=item.made_of)

    def parse(self, answer: Mapping[str, Any]) -> Report | None:
        """The report."""
        return parse(answer, self._tokens)

    def fallback(self, item: _Community) -> Report:
        """A report of the texts' own words."""
        return extractive(item.made, self._extractive)

    def rows_of(self, item: _Community, text: Report) -> list[Row]:
        """The row of a report."""
        return [{**asdict(text), "level": self.settings.level}]

    def placed(self, item: _Community, row: Row) -> Row:
        """With the id of the community, and how many members it has."""
        return {**row, "community_id": item.id, "members": item.members}

    def embedded(self, row: Row) -> str:
        """Title and summary."""
        return community_text(row["title"], row["text"])

    def counts(self, rows: Sequence[Row]) -> dict[str, int]:
        """The communities that need no report."""
        return {"reports_of_one_member": len(self.items) - len(self.written)}


def _compute(part: Part[ReportSettings]) -> Outputs:
    return _Reports(part).compute()


def _requests(part: Part[ReportSettings]) -> list[Request]:
    reports = _Reports(part)
    return reports.requests(reports.unwritten)


def _members(part: Part[ReportSettings], table: pa.Table) -> dict[str, Member]:
    """The members of a group's communities, by id."""
    found: dict[str, Member] = {}
    for shard in sorted(table["shard"].unique().to_pylist()):
        wanted = table.filter(pc.equal(table["shard"], shard))["member_id"].combine_chunks()
        digests = part.settings.texts[shard]
        if "described" in digests:
            columns = ["entity_id", "surface", "type", "description", "digest"]
            rows = read_table(part.store, digests["described"], DESCRIBED, columns=columns)
            for one in rows.filter(pc.is_in(rows["entity_id"], wanted)).to_pylist():
                text = entity_text(one["surface"], one["type"], one["description"])
                found[one["entity_id"]] = Member(
                    one["entity_id"], one["digest"], one["surface"], one["description"], text
                )
        else:
            columns = ["community_id", "title", "text", "members", "digest"]
            rows = read_table(part.store, digests["communities"], COMMUNITIES, columns=columns)
            for one in rows.filter(pc.is_in(rows["community_id"], wanted)).to_pylist():
                text = community_text(one["title"], one["text"])
                found[one["community_id"]] = Member(
                    one["community_id"], one["digest"], one["title"], one["text"], text, one["members"]
                )
    return found


def _relations(part: Part[ReportSettings]) -> dict[str, list[Relation]]:
    """The relations between members of one community, by community."""
    found: dict[str, list[Relation]] = {}
    if not part.has("relations"):
        return found
    table = part.table("relations")
    for shard in sorted(table["shard"].unique().to_pylist()):
        mine = table.filter(pc.equal(table["shard"], shard))
        columns = ["source", "target", "description"]
        texts = read_table(part.store, part.settings.texts[shard]["related"], RELATED, columns=columns)
        texts = texts.filter(pc.is_in(texts["source"], mine["source"].combine_chunks()))
        told = {(one["source"], one["target"]): one["description"] for one in texts.to_pylist()}
        for one in mine.to_pylist():
            ends = one["source"], one["target"]
            found.setdefault(one["community_id"], []).append(Relation(*ends, one["digest"], told[ends]))
    return found


def estimate(part: Part[ReportSettings], expected: Expected) -> Estimate:
    """Bounds of what has to be reported on, exact where the communities are known, and what a model is asked for it."""
    reports, rows = _Reports(part), expected.get("members")
    tokens, room = (part.settings.summariser[name] for name in ("tokens", "input_tokens"))
    if isinstance(rows, Rows):
        told = Range(0, 2 * room * rows.fresh.high)
        use = reports.planned_use(
            part.store, rows.fresh, task=WRITER.task, told=told, more=600, answer=most_output(tokens)
        )
    else:
        rows = Rows(len(reports.items), len(reports.items), Range.exactly(len(reports.unwritten)))
        use = reports.use(part.store, reports.unwritten)
    return Estimate(rows={"communities": rows}, llm=use)


STAGE = Stage(
    "community_reports",
    version=2,
    compute=_compute,
    settings=ReportSettings,
    libraries=("PyStemmer", "numpy", "sentencex"),
    estimate=estimate,
    requests=_requests,
    inputs=(
        Input("members", COMMUNITY_MEMBERS, output="community_members"),
        Input("relations", COMMUNITY_RELATIONS, output="community_relations", optional=True),
    ),
    outputs=(
        Output("communities", COMMUNITIES, artifact="communities/{label}"),
        Output("community_vectors", TEXT_VECTORS),
    ),
    uses_encoder=True,
)
