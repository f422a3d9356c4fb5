"""Stage `community_reports`: the reports on a group of communities, and their vectors (ArchRAG, Algorithm 1, line 7).

`made_of` hashes all inputs of a report, so a report is reused even if the community lost or gained a member that is not
among them. A community of one member takes its member's text, and no model is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.models.llm import object_schema
from schemas.config import Configuration
from schemas.tables import DESCRIBED, RELATED
from storage.table_blobs import read_table
from tasks.core.encoder_estimate import texts_to_come
from tasks.core.estimate import Estimate, Expected, Range, RowRange, new_rows
from tasks.core.stage import Input, Output, Part, Stage, worker_arg
from tasks.core.writer import Writer
from tasks.families.community_tree.report_inputs import DescribedRelation, Member, ReportInput, chosen
from tasks.families.community_tree.tables import COMMUNITIES, COMMUNITY_MEMBERS, COMMUNITY_RELATIONS, COMMUNITY_SOURCES
from tasks.llm.answer_parsing import list_schema, prose
from tasks.llm.prompts import Prompt
from tasks.stages.embed.embed import TEXT_VECTORS
from tasks.stages.resolve.consolidate import entity_text
from tasks.stages.write import summarise
from tasks.stages.write.summarise import fingerprint, plain
from tasks.stages.write.written_rows import Row, SourcedRows, SourcedSettings

_VERSION = 1
"""The version of `chosen` and `fallback`: raise it whenever they change reports."""

_MOST_FINDINGS = 5
_NAMED = 3  # members named in the title of a report that no model writes
_TITLE_TOKENS = 24
_FINDING_TOKENS = 60


def _fingerprint(configuration: Configuration, prompt: Prompt | None) -> dict[str, Any]:
    settings = configuration.families.community_tree
    more = {"input_tokens": settings.input_tokens, "report": _VERSION}
    return fingerprint(configuration, prompt, settings.report_tokens, **more)


WRITER = Writer(
    "community_report", "reports", _fingerprint, lambda configuration: configuration.families.community_tree.enabled
)


@dataclass(frozen=True)
class Insight:
    summary: str
    explanation: str


@dataclass(frozen=True)
class CommunityReport:
    """A report. rating: the importance of the community, 0 to 10."""

    title: str
    text: str
    findings: Sequence[Insight] = field(default=())
    rating: float = 0.0
    rating_explanation: str = ""


def community_text(title: str, text: str) -> str:
    """Return the text that represents a community to the encoder and to the summariser of the level above."""
    return f"{title}\n{text}"


def most_output(tokens: int) -> int:
    """Return the maximum number of tokens in an answer: summary, requested findings, and the JSON around them."""
    return summarise.most_output(tokens) + 4 * _MOST_FINDINGS * _FINDING_TOKENS + 200


@dataclass(frozen=True, kw_only=True)
class ReportSettings(SourcedSettings):
    """texts: the digests of the tables with the members' texts, by shard or group."""

    level: int
    summariser: Mapping[str, Any]
    encoder: Mapping[str, Any]
    texts: Mapping[str, Mapping[str, str]] = worker_arg()

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        return self.summariser

    def row_space(self) -> Mapping[str, Any]:
        return {**self.encoder, "summariser": self.summariser}


@dataclass(frozen=True)
class _Community:
    id: str
    members: int
    input: ReportInput
    made_of: str


class _Reports(SourcedRows[ReportSettings, _Community, CommunityReport]):
    declared = WRITER
    table, schema, counted_as = "communities", COMMUNITIES, "reports"
    vectors, with_ids, sources = "community_vectors", True, COMMUNITY_SOURCES

    def read(self) -> Iterator[_Community]:
        """Yield the communities in the order of their ids, with the inputs of their reports."""
        members: dict[str, list[Member]] = {}
        table = self.inputs.table("members")
        texts = _members(self.inputs, table)
        for community, member in zip(table["community_id"].to_pylist(), table["member_id"].to_pylist(), strict=True):
            members.setdefault(community, []).append(texts[member])
        relations, level = _relations(self.inputs), self.settings.level
        for community, community_members in members.items():
            report_input = chosen(
                community_members, relations.get(community, ()), self.writer["input_tokens"], above=level > 1
            )
            yield _Community(
                community, len(community_members), report_input, report_input.digest(level, self.settings.summariser)
            )

    def key_of(self, item: _Community) -> str:
        return item.made_of

    def owner_of(self, item: _Community) -> str:
        return item.id

    def fixed_text(self, item: _Community) -> CommunityReport | None:
        """Return the text of the only member as the report; None for a community of several members."""
        member = item.input.members[0]
        return CommunityReport(member.name, member.body or member.name) if item.members == 1 else None

    @property
    def answer_schema(self) -> Mapping[str, Any]:
        finding = object_schema(summary=prose(_FINDING_TOKENS), explanation=prose(_FINDING_TOKENS, least=0))
        return object_schema(
            title=prose(_TITLE_TOKENS),
            summary=prose(self.tokens),
            findings=list_schema(_MOST_FINDINGS, finding),
            rating={"type": "number"},
            rating_explanation=prose(_FINDING_TOKENS, least=0),
        )

    @property
    def most_output(self) -> int:
        return most_output(self.tokens)

    @property
    def numbers(self) -> Mapping[str, int]:
        return {"findings": _MOST_FINDINGS}

    def content(self, item: _Community) -> list[str]:
        """Return one text per member or, on the first level, one text of the entities and one of their relations."""
        report_input, most = item.input, 4 * self.writer["input_tokens"]
        texts = [member.text for member in report_input.members]
        if len(texts) == 1 and len(texts[0].encode()) > most:
            texts = [texts[0].encode()[:most].decode("utf-8", "ignore")]
        if report_input.above:
            return texts
        names = {member.id: member.name for member in report_input.members}
        relations = "\n".join(relation.text(names) for relation in report_input.relations)
        return ["\n\n".join(texts), *([relations] if relations else [])]

    def prose(self, text: CommunityReport) -> str:
        return text.text

    def parse(self, answer: Mapping[str, Any]) -> CommunityReport | None:
        """Return the report as plain text in single lines; None if the title or the summary is empty."""
        title, text = plain(str(answer["title"]), _TITLE_TOKENS), plain(str(answer["summary"]), 4 * self.tokens)
        if not title or not text:
            return None
        findings = [
            Insight(plain(str(one["summary"]), _FINDING_TOKENS), plain(str(one["explanation"]), 2 * _FINDING_TOKENS))
            for one in answer["findings"]
        ]
        return CommunityReport(
            title=title,
            text=text,
            findings=[one for one in findings if one.summary][: 2 * _MOST_FINDINGS],
            rating=round(float(min(max(answer["rating"], 0), 10)), 1),
            rating_explanation=plain(str(answer["rating_explanation"]), _FINDING_TOKENS),
        )

    def fallback(self, item: _Community) -> CommunityReport:
        """Write an extractive report.

        The title names the first members; the summary takes sentences from the members' texts and, on the first level,
        the descriptions of their relations; a finding is a relation or, above the first level, a member. With c
        members and n relations (above the first level: n members of members) the rating is 10 n / (n + c).
        """
        members, relations = item.input.members, item.input.relations
        if item.input.above:
            names = [one.name.partition(", ")[0] for one in members]
            texts = [one.body for one in members]
            count = sum(one.size for one in members)
            insights = [(one.name, one.body) for one in members]
            reason = f"{len(members)} communities of {count} members"
        else:
            names = [one.name for one in members]
            by_id = {one.id: one.name for one in members}
            texts = [one.text for one in members]
            texts += dict.fromkeys(one.description for one in relations if one.description)
            count = len(relations)
            insights = [(f"{by_id[one.source]} and {by_id[one.target]}", one.description) for one in relations]
            reason = f"{count} relations between {len(members)} entities"
        return CommunityReport(
            title=plain(", ".join(list(dict.fromkeys(names))[:_NAMED]), _TITLE_TOKENS),
            text=self.extractive.summary(texts),
            findings=[Insight(name, plain(text, _FINDING_TOKENS)) for name, text in insights[:_MOST_FINDINGS]],
            rating=round(10 * count / (count + len(members)), 1),
            rating_explanation=reason,
        )

    def rows_of(self, item: _Community, text: CommunityReport) -> list[Row]:
        return [{**asdict(text), "level": self.settings.level}]

    def placed(self, item: _Community, row: Row) -> Row:
        return {**row, "community_id": item.id, "members": item.members}

    def embedded(self, row: Row) -> str:
        return community_text(row["title"], row["text"])

    def counts(self, rows: Sequence[Row]) -> dict[str, int]:
        """Return the number of communities of one member, which need no report."""
        return {"reports_of_one_member": len(self.items) - len(self.written)}


def _members(part: Part[ReportSettings], table: pa.Table) -> dict[str, Member]:
    members: dict[str, Member] = {}
    for shard in sorted(table["shard"].unique().to_pylist()):
        member_ids = table.filter(pc.equal(table["shard"], shard))["member_id"].combine_chunks()
        digests = part.settings.texts[shard]
        if "described" in digests:
            columns = ["entity_id", "digest", "surface", "description", "type"]
            rows = read_table(part.store, digests["described"], DESCRIBED, columns=columns).select(columns)
            for row in rows.filter(pc.is_in(rows["entity_id"], member_ids)).to_pylist():
                identity, digest, name, body, kind = row.values()
                members[identity] = Member(identity, digest, name, body, entity_text(name, kind, body))
        else:
            columns = ["community_id", "digest", "title", "text", "members"]
            rows = read_table(part.store, digests["communities"], COMMUNITIES, columns=columns).select(columns)
            for row in rows.filter(pc.is_in(rows["community_id"], member_ids)).to_pylist():
                identity, digest, name, body, size = row.values()
                members[identity] = Member(identity, digest, name, body, community_text(name, body), size)
    return members


def _relations(part: Part[ReportSettings]) -> dict[str, list[DescribedRelation]]:
    relations: dict[str, list[DescribedRelation]] = {}
    if not part.has("relations"):
        return relations
    table = part.table("relations")
    for shard in sorted(table["shard"].unique().to_pylist()):
        mine = table.filter(pc.equal(table["shard"], shard))
        columns = ["source", "target", "description"]
        texts = read_table(part.store, part.settings.texts[shard]["related"], RELATED, columns=columns)
        texts = texts.filter(pc.is_in(texts["source"], mine["source"].combine_chunks()))
        descriptions = {(one["source"], one["target"]): one["description"] for one in texts.to_pylist()}
        for row in mine.to_pylist():
            ends = row["source"], row["target"]
            relations.setdefault(row["community_id"], []).append(
                DescribedRelation(*ends, row["digest"], descriptions[ends])
            )
    return relations


_USUAL_COMMUNITIES, _USUAL_SOURCES = 1 / 6, 1 / 5
"""The usual number of communities and tokens of their source texts, as shares of the maximum."""


def estimate(part: Part[ReportSettings], expected: Expected) -> Estimate:
    """Estimate the reports to write, exact if the communities are known, and the model's tokens for them."""
    reports, rows = _Reports(part), expected.get("members")
    tokens, room = (part.settings.summariser[name] for name in ("tokens", "input_tokens"))
    if isinstance(rows, RowRange):
        source_tokens = Range(0, 2 * room * rows.fresh.high)
        use = reports.planned_use(
            part.store,
            rows.fresh,
            task=WRITER.task,
            source_tokens=source_tokens,
            usual=(rows.fresh.high * _USUAL_COMMUNITIES, room * _USUAL_SOURCES),
            more=600,
            answer=most_output(tokens),
        )
    else:
        rows = RowRange(len(reports.items), len(reports.items), Range.exactly(len(reports.unwritten)))
        use = reports.use(part.store, reports.unwritten)
    return Estimate(rows={"communities": rows}, llm=use)


STAGE = Stage(
    "community_reports",
    version=2,
    compute=lambda part: _Reports(part).compute(),
    libraries=("PyStemmer", "numpy", "sentencex"),
    estimate=estimate,
    requests=_Reports.requests_of,
    inputs=(
        Input("members", COMMUNITY_MEMBERS, output="community_members"),
        Input("relations", COMMUNITY_RELATIONS, output="community_relations", optional=True),
    ),
    outputs=(
        Output("communities", COMMUNITIES, artifact="communities/{label}"),
        Output("community_vectors", TEXT_VECTORS),
    ),
    uses_encoder=True,
    encodes=lambda part, expected: texts_to_come(part, new_rows(estimate(part, expected).rows["communities"])),
)
