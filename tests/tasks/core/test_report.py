"""What a run tells about itself."""

from __future__ import annotations

import pytest

from schemas.config import Price
from tasks.core.report import MOST_WARNINGS, Fallbacks, RecordedWarnings, RunReport, Silent, StageReport
from tasks.llm.account import Spent


def test_blocks_of_a_stage_at_the_same_time_count_once() -> None:
    now = [0.0]
    report = RunReport(lambda: now[0])

    def until(time: float) -> None:
        now[0] = time

    with report.at_work("embed"):
        until(2.0)
        with report.at_work("embed"), report.at_work("split"):
            until(5.0)
        until(6.0)
    until(10.0)
    with report.at_work("embed"):
        until(11.0)
    assert (report.stage("embed").wall_seconds, report.stage("split").wall_seconds) == (7.0, 3.0)
    assert report.to_json()["totals"]["wall_seconds"] == 11.0


def test_what_a_stage_waited_for_is_no_work() -> None:
    now = [0.0]
    report = RunReport(lambda: now[0])
    with report.at_work("tri_graph"):  # finding the parts that are there
        now[0] = 1.0
    for ended, took in ((29.0, 4.0), (31.0, 5.0), (40.0, 1.0), (40.5, 20.0)):  # on workers, partly at the same time
        now[0] = ended
        report.count_work("tri_graph", took)
    assert report.stage("tri_graph").wall_seconds == pytest.approx(1.0 + 20.0)


def test_the_totals_are_the_sums_of_the_stages() -> None:
    report = RunReport(lambda: 0.0)
    for number, name in enumerate(("ingest", "embed", "extract"), 1):
        stage = report.stage(name)
        stage.parts_made, stage.parts_failed, stage.bytes_made, stage.seconds = number, 1, 100 * number, 0.1
        stage.cost = 0.25
        stage.counts.update(llm_calls=number, quarantined=2)
    report.stage("embed").counts["vectors_made"] = 7
    told = report.to_json()
    assert told["totals"] == {
        "parts_made": 6,
        "parts_reused": 0,
        "parts_differing": 0,
        "parts_failed": 3,
        "quarantined": 6,
        "seconds": 0.3,
        "wall_seconds": 0.0,
        "bytes_made": 600,
        "vectors_made": 7,
        "vectors_reused": 0,
        "llm_calls": 6,
        "llm_ledger": 0,
        "llm_tokens": 0,
        "llm_input_tokens": 0,
        "llm_output_tokens": 0,
        "embed_calls": 0,
        "embed_ledger": 0,
        "embed_tokens": 0,
        "cost": 0.75,
    }
    assert told["stages"]["embed"] | {"vectors_made": 7, "llm_calls": 2, "bytes_made": 200} == told["stages"]["embed"]
    assert "quality" not in told


def test_what_the_quota_saw_of_unfinished_parts_counts_and_tokens_have_their_prices() -> None:
    price = Price(input_per_million=10.0, output_per_million=40.0)
    stage = StageReport()
    stage.counts.update(llm_calls=2, llm_input_tokens=1_000, llm_output_tokens=100, llm_tokens=1_100, llm_ledger=3)
    stage.add_llm_use(Spent(3, 1_500, 200, 0.0), price)
    assert stage.counts["llm_tokens"] == 1_700
    assert (stage.counts["llm_calls"], stage.counts["llm_ledger"]) == (3, 3)
    assert stage.cost == pytest.approx((1_500 * 10 + 200 * 40) / 1e6)
    stage.add_llm_use(Spent(), price)  # a quota that is gone takes nothing away
    assert stage.counts["llm_calls"] == 3
    stage.counts.update(embed_calls=1, embed_input_tokens=100, embed_tokens=100)
    stage.add_encoder_use(Spent(2, 300, 0, 0.0), Price(input_per_million=2.0, output_per_million=0.0))
    assert (stage.counts["embed_calls"], stage.counts["embed_tokens"], stage.counts["llm_calls"]) == (2, 300, 3)
    assert stage.cost == pytest.approx((1_500 * 10 + 200 * 40 + 300 * 2) / 1e6)
    quiet = StageReport()
    quiet.add_llm_use(Spent(), None)
    quiet.add_encoder_use(Spent(), None)
    assert (quiet.counts, quiet.cost) == ({}, 0.0)


def test_a_part_is_in_the_timeline_and_in_the_time_of_its_stage() -> None:
    now = [0.0]
    report = RunReport(lambda: now[0])
    now[0] = 5.0
    report.count_part("embed", "host:7", 3.0)
    told = report.to_json()
    assert told["timeline"] == {"workers": ["host:7"], "spans": [[0, "embed", 2.0, 5.0, 1]], "left_out": 0}
    assert told["stages"]["embed"]["wall_seconds"] == 3.0


def test_the_record_names_warnings_and_counts_those_beyond_its_bound() -> None:
    report = RunReport(lambda: 0.0)
    progress = RecordedWarnings(Silent(), report.warnings)
    for number in range(MOST_WARNINGS + 2):
        progress.warn(f"warning {number}")
    told = report.to_json()
    assert (told["warnings"][0], len(told["warnings"])) == ("warning 0", MOST_WARNINGS)
    assert told["warnings_left_out"] == 2


def test_a_warning_is_recorded_without_the_secrets_it_holds() -> None:
    warnings: list[str] = []
    RecordedWarnings(Silent(), warnings).warn("https://ada:hidden@models.example/v1 does not answer")
    assert warnings == ["https://***@models.example/v1 does not answer"]


def test_fallbacks_name_the_texts_that_were_of_no_use() -> None:
    assert str(Fallbacks("summaries", 1_204, 3)) == "3 of 1,204 texts of summaries"
    assert str(Fallbacks("summaries", 4, 3, 2)).endswith(
        " (in this run, 2 were too short, or repeated themselves or the prompt)"
    )
