"""A recorded run over a larger corpus."""

from __future__ import annotations

import dataclasses
import math

import pytest

from benchmarks.growth import (
    DRIVER,
    END,
    LINEAR,
    PAIRS,
    PARTS,
    Law,
    in_waves,
    laws_of,
    measured_laws,
    parse_law,
    scaled,
    with_steps_of,
)
from benchmarks.recorded_run import RecordedPart, RecordedRound, RecordedRun, RecordedStep, graph_of
from benchmarks.schedule import Workers, play


def part(stage: str, shard: str, seconds: float = 1.0, first: bool = False) -> RecordedPart:
    return RecordedPart(stage, shard, seconds, seconds, 0.0, first, 1, 10, 1, 4, raised_bytes=2)


def step(name: str, *parts: RecordedPart, of_shards: bool = False, needs: tuple[str, ...] = ()) -> RecordedStep:
    stage = parts[0].stage if parts else name
    return RecordedStep(name, 0, of_shards, needs, 0.0, (RecordedRound(stage, 0.5, parts, 0.25),), 0.125)


def run(*steps: RecordedStep, documents: int = 100) -> RecordedRun:
    return RecordedRun("run", documents, 1, 1.0, 1.0, 0.5, steps, 10.0)


SCAN = step("scan", part("scan", ""))
SPLIT = step("split", part("split", "p0", first=True), part("split", "p1", 2.0), of_shards=True, needs=("scan",))
RESOLVE = step("resolve", part("resolve", "e", 3.0), needs=("split",))
TREE = step("tree", part("lsh_segments", "l1"), needs=("split",))
TEXTS = step("texts", part("lsh_summaries", "a01"), needs=("tree",))
RUN = run(SCAN, SPLIT, RESOLVE, TREE, TEXTS)


def test_parts_of_bounded_size_become_more_and_those_of_the_whole_longer() -> None:
    laws = laws_of(RUN)
    assert laws == {
        "scan": PARTS,
        "split": PARTS,
        "resolve": LINEAR,  # all entities of a range
        "lsh_segments": LINEAR,  # all nodes of a layer
        "lsh_summaries": PARTS,
        DRIVER: Law(0),
        END: Law(0),
    }
    grown = scaled(RUN, 3, laws)
    assert grown.documents == 300
    seconds = {one.name: [part.seconds for round_ in one.rounds for part in round_.parts] for one in grown.steps}
    assert seconds == {
        "scan": [1, 1, 1],
        "split": [1, 2, 2, 2, 2, 2],  # the first of its process stays the only one that opens what it needs
        "resolve": [9],
        "tree": [3],
        "texts": [1, 1, 1],
    }
    resolve = grown.steps[2].rounds[0].parts[0]
    assert (resolve.bytes_read, resolve.bytes_made, resolve.raised_bytes) == (30, 12, 6)
    # A further part takes an eighth of a second of the driver, as in the round of two parts.
    assert [one.rounds[0].before for one in grown.steps] == [0.75, 1.0, 0.5, 0.5, 0.75]
    driven = scaled(RUN, 3, laws | {DRIVER: LINEAR, END: Law(2)})
    assert [one.rounds[0].before for one in driven.steps] == [1.25, 1.5, 1.0, 1.0, 1.25]
    assert ([one.after for one in driven.steps], driven.end_seconds) == ([0.375] * 5, 9.0)


def test_a_part_of_the_whole_among_those_of_shards_grows_and_one_that_reads_nothing_does_not() -> None:
    check = RecordedStep(
        "check",
        0,
        False,
        (),
        0.0,
        tuple(RecordedRound("check", 0.0, (part("check", shard),)) for shard in ("p0", "all")),
        0.0,
    )
    axes = step("axes", dataclasses.replace(part("lsh_axes", "all"), opened=0, bytes_read=0))
    found = run(check, axes)
    laws = laws_of(found)
    assert (laws["check"], laws["lsh_axes"]) == (PARTS, Law(0, why="reads nothing of the corpus"))
    shards, whole = scaled(found, 3, laws).steps[0].rounds
    assert [one.seconds for one in shards.parts] == [1, 1, 1]
    assert [one.seconds for one in whole.parts] == [3]
    assert [one.seconds for one in scaled(found, 3, laws).steps[1].rounds[0].parts] == [1]


@pytest.mark.parametrize(
    ("factor", "parts", "seconds"), [(2, 16, 2.0), (8, 64, 8.0), (16, 64, 32.0)]
)  # four times, 64 times and 256 times the pairs of rows
def test_comparing_all_rows_is_quadratic_in_ranges_that_are_64_at_most(factor: int, parts: int, seconds: float) -> None:
    ranges = step("zoom_links", *(part("compare_rows", f"documents-{number:03b}") for number in range(8)))
    joined = RecordedRound("zoom_links", 0.5, (part("zoom_links", "documents"),), 0.25)
    compared = run(dataclasses.replace(ranges, rounds=(*ranges.rounds, joined)))
    laws = laws_of(compared)
    assert (laws["compare_rows"], laws["zoom_links"]) == (PAIRS, LINEAR)
    found, whole = scaled(compared, factor, laws).steps[0].rounds
    assert [one.seconds for one in found.parts] == [seconds] * parts
    assert [one.seconds for one in whole.parts] == [factor]
    alone = run(dataclasses.replace(ranges, rounds=(joined,)))
    assert laws_of(alone)["zoom_links"].exponent == 2  # few rows are compared in one part


def test_steps_are_taken_from_another_run_over_the_same_corpus() -> None:
    quicker = step("resolve", *(part("resolve", f"e{number}", 0.5) for number in (0, 1)), needs=("other",))
    found = with_steps_of(RUN, run(SCAN, dataclasses.replace(quicker, group=7)), ["resolve"])
    assert [one.name for one in found.steps] == [one.name for one in RUN.steps]
    assert found.steps[2] == dataclasses.replace(quicker, needs=("split",))
    assert (*found.steps[:2], *found.steps[3:]) == (*RUN.steps[:2], *RUN.steps[3:])
    for name in ("tree", "unknown"):
        with pytest.raises(ValueError, match=f"not both runs have the steps {name}"):
            with_steps_of(RUN, run(SCAN, quicker), [name])


def test_the_same_corpus_is_the_same_run() -> None:
    assert scaled(RUN, 1, laws_of(RUN)) == RUN


def test_laws_are_given_by_name_or_exponent() -> None:
    assert parse_law("1.5").of_seconds(100, 4) == 8
    assert parse_law("constant").of_seconds(100, 4) == 1
    assert parse_law("nlogn").of_seconds(100, 100) == pytest.approx(100 * 2)  # log 10,000 is twice log 100
    assert parse_law("parts").parts(7, 2) == 14
    assert [str(parse_law(text)) for text in ("parts", "constant", "linear", "nlogn", "1.25")] == [
        "parts x N",
        "constant",
        "N",
        "N log N",
        "N^1.25",
    ]
    assert str(PAIRS) == "N^2.00 in at most 64 parts"
    for wrong in ("-1", "9", "nan", "quick"):
        with pytest.raises(ValueError):  # noqa: PT011 - of two kinds
            parse_law(wrong)
    assert laws_of(RUN, {"resolve": parse_law("2"), "unknown": LINEAR})["resolve"].exponent == 2
    assert "unknown" not in laws_of(RUN, {"unknown": LINEAR})


def test_more_than_the_bytes_no_stage_of_the_whole_reads() -> None:
    assert Law(2.0).of_bytes(10) == 10
    assert Law(0.5).of_bytes(100) == 10


def test_exponents_are_measured_between_the_smallest_and_the_largest_run() -> None:
    def of(documents: int, seconds: float, quick: float) -> RecordedRun:
        resolve = step("resolve", part("resolve", "e", seconds))
        return run(SPLIT, resolve, step("check", part("check", "all", quick)), documents=documents)

    runs = [of(400, 8.0, 0.4), of(100, 1.0, 0.1), of(200, 77.0, 0.2)]
    found = measured_laws(runs)
    assert found[DRIVER].exponent == found[END].exponent == 0
    assert set(found) == {"resolve", DRIVER, END}  # a stage of shards has its own law, and `check` is too quick to tell
    assert found["resolve"].exponent == pytest.approx(math.log(8) / math.log(4))
    assert found["resolve"].why == "measured, 100 and 400 documents"
    assert measured_laws(runs[:1]) == {}
    assert measured_laws([runs[0], runs[0]]) == {}


def test_a_run_in_waves_makes_every_part_once_and_waits_for_each_wave() -> None:
    grown = scaled(RUN, 3, laws_of(RUN))
    waves = in_waves(grown, 4)
    assert sorted(map(repr, waves.parts)) == sorted(map(repr, grown.parts))
    assert [(one.group, one.name, len(one.rounds[0].parts)) for one in waves.steps] == [
        (0, "scan", 3),
        (1, "split", 4),
        (2, "split", 2),
        (3, "resolve", 1),
        (3, "tree", 1),
        (3, "texts", 3),
    ]
    split = [one.rounds[0].before for one in waves.steps if one.name == "split"]
    assert split == pytest.approx([0.25 + 0.5, 0.25 + 0.25])  # the driver looks for the parts of a wave at a time
    many = Workers(100)
    assert play(graph_of(waves), many).seconds >= play(graph_of(grown), many).seconds
    with pytest.raises(ValueError, match="a backfill"):
        in_waves(waves, 4)
    with pytest.raises(ValueError, match="at least one shard"):
        in_waves(RUN, 0)
