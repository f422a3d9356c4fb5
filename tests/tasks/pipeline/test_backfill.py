"""How shards are grouped into waves, and what is told of their pace."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tasks.pipeline.backfill import WAVE_TOKENS, WaveRate, Waves
from tasks.stages.ingest.shard_plan import Shard
from tests.deep import examples


def shards(*tokens: int) -> list[Shard]:
    return [Shard(f"p{number}", number, 10, held, "", "") for number, held in enumerate(tokens)]


@examples(20, deep=100)
@given(st.lists(st.integers(0, WAVE_TOKENS * 2), max_size=30), st.none() | st.integers(1, 40))
def test_waves_hold_every_shard_once_in_order_and_no_more_than_they_may(tokens: list[int], most: int | None) -> None:
    cut = Waves(most).cut(shards(*tokens))
    assert [shard for wave in cut for shard in wave] == shards(*tokens)
    if not tokens:
        assert cut == [()]
    for wave, following in zip(cut, [*cut[1:], ()], strict=True):
        if most is not None:
            assert len(wave) <= most
            assert not following or len(wave) == most
        else:
            assert len(wave) == 1 or sum(shard.tokens for shard in wave) <= WAVE_TOKENS
            assert not following or sum(shard.tokens for shard in wave) + following[0].tokens > WAVE_TOKENS


def test_the_pace_is_that_of_the_waves_made_and_tells_how_long_the_rest_takes() -> None:
    now = 100.0
    pace = WaveRate(lambda: now)
    now += 20
    assert pace.record(shards(500, 500), 4000) == "1.0 documents/s, 50 tokens/s, 80 s left"
    now += 80
    assert pace.record(shards(4000), 500_000) == "0.3 documents/s, 50 tokens/s, 2.8 h left"
    now += 100
    assert pace.record(shards(5000), 30_000) == "0.2 documents/s, 50 tokens/s, 10 min left"
    assert pace.record([], 0) == "0.2 documents/s, 50 tokens/s"


def test_a_wave_of_no_tokens_has_a_pace() -> None:
    assert WaveRate(lambda: 0.0).record([], 10).endswith("0 tokens/s")
