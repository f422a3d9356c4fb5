"""Compare what a plan expects of a language model with what the build then takes, over real nights of change.

    python -m benchmarks.plans DATA/techdocs/state.py FOLDER [--docs 60] [--nights 3]
    python -m benchmarks.plans DATA/techdocs/state.py FOLDER --model NAME --base-url http://localhost:8000/v1

Every family is enabled and asks the model. Without an endpoint, a double of `tests.llm_server` answers: its extraction
is a rule's, so its calls and tokens are only like a model's. Ratios are expected to actual.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import yaml

from benchmarks.machine import argument_parser, describe_machine, run_command
from benchmarks.sets import write_night
from tests.llm_server import CANARY, LlmServer

FAMILIES = ("tri_graph", "zoom_graph", "lsh_tree", "community_tree", "heterograph")
KEY = "BENCHMARK_KEY"
HEADER = ["night", "documents changed", "calls expected", "made", "ratio", "bounds"]
HEADER += ["tokens expected", "taken", "ratio", "most"]


def build(settings: Path, corpus: Path) -> list[str]:
    """Plan and run a build; return the changed documents, and the expected and actual calls and tokens."""
    plan = run_command("plan", "--config", settings, "--corpus", corpus)
    outcome = run_command("build", "--config", settings, "--corpus", corpus)
    changes: dict[str, int] = plan["documents"]
    changed = sum(changes[kind] for kind in ("added", "changed", "removed", "moved"))
    calls, tokens = plan["llm_calls"], plan["llm_tokens"]
    most = tokens["input"]["high"] + tokens["output"]["high"]
    expected = tokens["input"]["expected"] + tokens["output"]["expected"]
    cells = [*_compared(calls["expected"], outcome["llm_calls"]), f"{calls['low']:,} to {calls['high']:,}"]
    return [f"{changed:,}", *cells, *_compared(expected, outcome["llm_tokens"]), f"{most:,}"]


def _compared(expected: int, actual: int) -> list[str]:
    return [f"{expected:,}", f"{actual:,}", f"{expected / actual:.2f}" if actual else "-"]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("state", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--docs", type=int, default=60)
    parser.add_argument("--nights", type=int, default=3)
    parser.add_argument("--model", help="the model that writes; without it a double does")
    parser.add_argument("--base-url", help="its endpoint; by default OpenAI's")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    settings = chosen.folder / "indexmill.yaml"
    with contextlib.ExitStack() as stack:
        llm: dict[str, Any] = {"backend": "openai", "model": chosen.model, "base_url": chosen.base_url}
        if chosen.model is None:
            os.environ[KEY] = CANARY
            llm |= {"model": "double", "base_url": stack.enter_context(LlmServer()).base_url, "api_key_env": KEY}
        families = {name: {"enabled": True} for name in FAMILIES}
        settings.write_text(yaml.safe_dump({"store": "store", "llm": llm, "families": families}))
        print(
            f"{describe_machine()}\n{chosen.docs} documents, all families, {llm['model']}\n\n| {' | '.join(HEADER)} |"
        )
        print(f"|{' --- |' * len(HEADER)}", flush=True)
        for night in range(chosen.nights + 1):
            corpus = write_night(chosen.state, night, chosen.folder, chosen.docs, chosen.nights)
            print(f"| {night} | {' | '.join(build(settings, corpus))} |", flush=True)


if __name__ == "__main__":
    main()
