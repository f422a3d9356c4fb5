"""Stage `community_reports`: the reports on a group of communities, and their vectors (ArchRAG, Algorithm 1, line 7).

Reports are the dearest rows of a build. `made_of` hashes all that a report is made of, so a row that an earlier part
holds under it is copied, also to a community that has lost or won a member of no weight; a stand-in is not. A
community of one member has its member's text, and no model is asked. Vectors are found by their texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

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
    conform,
)
from storage.tables import read_table
from tasks.core.encoder import encoder_of
from tasks.core.estimate import Estimate, LlmUse, Range, Rows
from tasks.core.shards import id_hashes
from tasks.core.stage import Inputs, Outputs, Stage
from tasks.families.community_tree.report_writer import (
    TASK,
    Made,
    Member,
    Relation,
    Report,
    alone,
    chosen,
    community_text,
    extractive,
    most_output,
    request,
    said,
)
from tasks.llm.ask import Answer, ask
from tasks.llm.prompts import Prompt
from tasks.stages.embed.embed import TEXT_VECTORS, embed_texts, keys_array, row_key
from tasks.stages.embed.known_rows import KnownRows
from tasks.stages.resolve.describe import entity_text
from tasks.stages.write.summarise import Extractive

__all__ = ["STAGE", "community_text", "estimate"]

_LONGEST = 48
"""Bytes of a report for each token of its summary: findings are about as long, and what is longer is cut."""


@dataclass(frozen=True)
class _Community:
    """A community, what its report is made of, and the hash of that."""

    id: str
    members: int
    made: Made
    made_of: str


def _compute(inputs: Inputs) -> Outputs:
    settings = inputs.settings
    communities = list(_communities(inputs))
    known = KnownRows(inputs, COMMUNITIES, "made_of")
    held = known.rows([one.made_of for one in communities])
    missing = list({one.made_of: one for one in communities if one.made_of not in held}.values())
    reports, asked = _made(inputs, missing) if missing else ([], {})
    texts = [community_text(report.title, report.text) for report, _ in reports]
    tokens = encoder_of(inputs).count_tokens(texts).tolist() if texts else []
    for one, (report, stand_in), text, count in zip(missing, reports, texts, tokens, strict=True):
        held[one.made_of] = {
            **asdict(report),
            "level": settings["level"],
            "tokens": count,
            "digest": row_key(text).hex(),
            "made_of": one.made_of,
            "stand_in": stand_in,
        }
    rows = [{**held[one.made_of], "community_id": one.id, "members": one.members} for one in communities]
    vectors, keys, _ = embed_texts(
        [community_text(row["title"], row["text"]) for row in rows],
        lambda texts: encoder_of(inputs).encode(texts),
        known.vectors,
        settings["encoder"]["dimension"],
    )
    stand_ins = sum(row["stand_in"] for row in rows)
    single = sum(one.members == 1 for one in communities)
    return Outputs(
        tables={"communities": conform(pa.Table.from_pylist(rows, COMMUNITIES), COMMUNITIES)},
        packs={
            "community_vectors": TEXT_VECTORS.conform(
                {
                    "keys": id_hashes(row["community_id"] for row in rows),
                    "text_keys": keys_array(keys),
                    "vectors": vectors,
                }
            )
        },
        counts={
            "reports_made": sum(one.members > 1 for one in missing),
            "reports_reused": len(communities) - single - sum(one.members > 1 for one in missing),
            "reports_of_one_member": single,
            "stand_ins": stand_ins,
            **asked,
        },
        failed=stand_ins,
        texts=len(communities) - single,
    )


def _made(inputs: Inputs, missing: Sequence[_Community]) -> tuple[list[tuple[Report, bool]], Mapping[str, int]]:
    """The report on each community, and whether it is a stand-in; counts of what a model was asked."""
    settings = inputs.settings
    tokens: int = settings["summariser"]["tokens"]
    writer = Extractive(tokens, settings["language"])
    own = {one.id: alone(one.made.members[0]) for one in missing if one.members == 1}
    several = [one for one in missing if one.members > 1]
    if settings["summariser"]["backend"] == "extractive":
        return [(own.get(one.id) or extractive(one.made, writer), False) for one in missing], {}
    asked = ask(inputs.store, settings["asking"], _questions(inputs, several), run_id=inputs.job.run_id)
    answers = [said(one.value, tokens) if isinstance(one, Answer) else None for one in asked.results]
    found = dict(zip((one.id for one in several), answers, strict=True))
    reports = [(one, own.get(one.id) or found[one.id]) for one in missing]
    return [(report or extractive(one.made, writer), report is None) for one, report in reports], asked.counts


def _questions(inputs: Inputs, communities: Sequence[_Community]) -> list[Request]:
    """What a model is asked for some communities of several members."""
    settings = inputs.settings
    asked: Prompt = settings["prompt"]
    tokens, room = (settings["summariser"][name] for name in ("tokens", "input_tokens"))
    table = read_table(inputs.store, settings["sources"], COMMUNITY_SOURCES)
    wanted = table.filter(pc.is_in(table["community_id"], pa.array([one.id for one in communities], pa.string())))
    about: dict[str, list[str]] = {}
    for community, source in zip(wanted["community_id"].to_pylist(), wanted["source_id"].to_pylist(), strict=True):
        about.setdefault(community, []).append(source)
    return [
        request(one.made, tokens, room, asked, about=about.get(one.id, ()), makes=one.made_of) for one in communities
    ]


def _requests(inputs: Inputs) -> list[Request]:
    """What the part will ask a model for: the reports that no earlier part holds."""
    if inputs.settings["summariser"]["backend"] == "extractive":
        return []
    return _questions(inputs, _missing(inputs)[1])


def _missing(inputs: Inputs) -> tuple[int, list[_Community]]:
    """How many communities there are, and those of several members whose reports no earlier part holds."""
    communities = list(_communities(inputs))
    held = KnownRows(inputs, COMMUNITIES, "made_of").rows([one.made_of for one in communities])
    missing = {one.made_of: one for one in communities if one.members > 1 and one.made_of not in held}
    return len(communities), list(missing.values())


def _communities(inputs: Inputs) -> Iterator[_Community]:
    """The communities of a group in the order of their ids, with what their reports are made of."""
    settings = inputs.settings
    table = inputs.table("members", COMMUNITY_MEMBERS)
    members: dict[str, list[Member]] = {}
    texts = _members(inputs, table)
    for community, member in zip(table["community_id"].to_pylist(), table["member_id"].to_pylist(), strict=True):
        members.setdefault(community, []).append(texts[member])
    relations = _relations(inputs)
    summariser, above = settings["summariser"], settings["level"] > 1
    for community, held in members.items():
        made = chosen(held, relations.get(community, ()), summariser["input_tokens"], above=above)
        yield _Community(community, len(held), made, made.digest(settings["level"], summariser))


def _members(inputs: Inputs, table: pa.Table) -> dict[str, Member]:
    """The members of a group's communities, by id."""
    found: dict[str, Member] = {}
    for shard in sorted(table["shard"].unique().to_pylist()):
        wanted = table.filter(pc.equal(table["shard"], shard))["member_id"].combine_chunks()
        digests = inputs.settings["texts"][shard]
        if "described" in digests:
            columns = ["entity_id", "surface", "type", "description", "digest"]
            rows = read_table(inputs.store, digests["described"], DESCRIBED, columns=columns)
            for one in rows.filter(pc.is_in(rows["entity_id"], wanted)).to_pylist():
                text = entity_text(one["surface"], one["type"], one["description"])
                found[one["entity_id"]] = Member(
                    one["entity_id"], one["digest"], one["surface"], one["description"], text
                )
        else:
            columns = ["community_id", "title", "text", "members", "digest"]
            rows = read_table(inputs.store, digests["communities"], COMMUNITIES, columns=columns)
            for one in rows.filter(pc.is_in(rows["community_id"], wanted)).to_pylist():
                text = community_text(one["title"], one["text"])
                found[one["community_id"]] = Member(
                    one["community_id"], one["digest"], one["title"], one["text"], text, one["members"]
                )
    return found


def _relations(inputs: Inputs) -> dict[str, list[Relation]]:
    """The relations between members of one community, by community."""
    found: dict[str, list[Relation]] = {}
    if "relations" not in inputs.job.inputs:
        return found
    table = inputs.table("relations", COMMUNITY_RELATIONS)
    for shard in sorted(table["shard"].unique().to_pylist()):
        mine = table.filter(pc.equal(table["shard"], shard))
        columns = ["source", "target", "description"]
        texts = read_table(inputs.store, inputs.settings["texts"][shard]["related"], RELATED, columns=columns)
        texts = texts.filter(pc.is_in(texts["source"], mine["source"].combine_chunks()))
        told = {(one["source"], one["target"]): one["description"] for one in texts.to_pylist()}
        for one in mine.to_pylist():
            ends = one["source"], one["target"]
            found.setdefault(one["community_id"], []).append(Relation(*ends, one["digest"], told[ends]))
    return found


def estimate(inputs: Inputs, expected: Mapping[str, Range]) -> Estimate:
    """Bounds of what has to be reported on, exact where the communities are known, and what a model is asked for it.

    A call that is repeated or repaired counts once.
    """
    settings = inputs.settings
    rows = expected.get("members")
    if not isinstance(rows, Rows):
        count, missing = _missing(inputs)
        rows = Rows(count, count, Range.exactly(len(missing)))
    dimension = settings["encoder"]["dimension"]

    def vectors(count: int) -> int:
        return TEXT_VECTORS.size({"texts": count, "dimensions": dimension})

    most = rows.high * (_LONGEST * settings["summariser"]["tokens"] + 4096) + 16_384
    return Estimate(
        bytes={"communities": Range(0, most), "community_vectors": Range(vectors(rows.low), vectors(rows.high))},
        rows={"communities": rows, "community_vectors": rows},
        llm=_llm_use(inputs, rows) if settings["summariser"]["backend"] != "extractive" else (),
    )


def _llm_use(inputs: Inputs, rows: Rows) -> tuple[LlmUse, ...]:
    """What a model is asked for the rows that no earlier part holds; the ledger may have answers to all of it."""
    settings = inputs.settings
    tokens, room = (settings["summariser"][name] for name in ("tokens", "input_tokens"))
    instructions = len(settings["prompt"][0])
    calls = Range(0 if inputs.store.list("ledger/") else rows.fresh.low, rows.fresh.high)
    more = instructions // 2 + 600 + 2 * room  # the schema, and what delimits the texts
    return (
        LlmUse(
            model=settings["summariser"]["model"],
            calls=calls,
            input_tokens=Range(calls.low * (instructions // 8), calls.high * more),
            output_tokens=Range(calls.low, calls.high * most_output(tokens)),
            tasks=(TASK,),
            prompts=Range(rows.fresh.low, rows.fresh.high),
        ),
    )


STAGE = Stage(
    "community_reports",
    version=2,
    compute=_compute,
    libraries=("PyStemmer", "numpy", "sentencex"),
    estimate=estimate,
    requests=_requests,
)
