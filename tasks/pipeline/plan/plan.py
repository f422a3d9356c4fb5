"""The record of a plan: the work and cost of the next build, printed, written to a file, and checked by a build.

`tasks.pipeline.plan.planner` makes the record. A build with a plan stops if its parent, its corpus or its settings
differ from those of the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from indexmill.errors import BudgetReached, ConfigurationError, GateRefused
from indexmill.store.canonical import canonical_json, digest_of
from indexmill.store.record import Digest, Record
from indexmill.text.counted import counted
from schemas.config import Price
from tasks.core.environment import environment_fingerprint
from tasks.core.estimate import Forecast
from tasks.core.report import RunReport
from tasks.llm.account import price_of
from tasks.pipeline.corpus_run import CorpusRun
from tasks.pipeline.plan.causes import Cause
from tasks.pipeline.plan.changes import Change, DocumentChanges, changed
from tasks.pipeline.plan.duration import Seconds
from tasks.pipeline.plan.judged import MEASURES, ModelUse
from tasks.pipeline.plan.sizes import PlanBytes

_MANY = 5


class PlanParent(Record):
    """The version that the build would start from."""

    version: int
    manifest: Digest


class PlanCorpus(Record):
    """The corpus at the time of the plan. `shards`: the digest of each shard's documents, by label."""

    fingerprint: str
    documents: int
    shards: dict[str, Digest]


class PlanSettings(Record):
    """The inputs of an index other than its corpus: the settings, the models, the environment and the `--cold` flag."""

    digest: Digest
    values: dict[str, JsonValue]

    @classmethod
    def of(cls, values: dict[str, Any]) -> PlanSettings:
        return cls(digest=digest_of(canonical_json(values)), values=values)


@dataclass(frozen=True)
class PlanParts:
    """The numbers of parts and vectors to be made and to be reused.

    Groups of nodes that are not computed yet are assumed to be as numerous as in the previous version. certain: the
    number of parts that will certainly be made. It excludes parts that may be reused after all, since their inputs are
    made again and may turn out the same, and parts that may not be needed: layers, and groups of nodes that are not
    computed yet.
    """

    made: int = 0
    certain: int = 0
    reused: int = 0
    vectors_made: int = 0
    vectors_reused: int = 0
    causes: dict[Cause, int] = field(default_factory=dict)  # parts to be made, by cause


@dataclass(frozen=True, slots=True)
class TokenCounts:
    input: Forecast
    output: Forecast


@dataclass(frozen=True)
class Cost:
    """The price of all LLM calls. `models`: calls, tokens and bounds of each model, by name.

    low, high: bounds that hold for any answers. expected: an estimate. likely: a bound that the price is unlikely to
    exceed; None if the ledger has too few answers of a model. answers: the number of answers that gave both. unpriced:
    called models without a price, which the totals exclude.
    """

    currency: str
    low: float
    high: float
    expected: float
    likely: float | None = None
    answers: int = 0
    models: dict[str, JsonValue] = field(default_factory=dict)
    unpriced: Annotated[tuple[str, ...], Field(strict=False)] = ()


class Plan(Record):
    """A plan. `publishes`: True if a new version would be published. For causes, see `tasks.pipeline.plan.causes`.

    `coverage`: what would become of the files, see `tasks.stages.ingest.corpus_coverage`. A build may differ from it.
    """

    format_version: Literal[1] = 1
    parent: PlanParent | None
    corpus: PlanCorpus
    settings: PlanSettings
    publishes: bool
    documents: DocumentChanges
    refused: dict[str, int]
    parts: PlanParts
    stages: dict[str, PlanParts]
    changes: Annotated[tuple[Change, ...], Field(strict=False)]
    llm_calls: Forecast
    llm_tokens: TokenCounts
    embed_calls: Forecast
    embed_tokens: Forecast
    cost: Cost
    bytes: PlanBytes | None
    seconds: Seconds | None
    coverage: dict[str, JsonValue] = Field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as a JSON object; `vectors` is the number to be made."""
        return {**self.model_dump(mode="json"), "vectors": self.parts.vectors_made}


def cost_of(uses: Iterable[tuple[str, ModelUse]], prices: Mapping[str, Price]) -> Cost:
    """Compute the cost of models, each with its name, from prices per million tokens."""
    models: dict[str, JsonValue] = {}
    low = high = expected = 0.0
    likely: float | None = 0.0
    answers, unpriced = 0, []
    for name, use in sorted(uses, key=itemgetter(0)):
        price = prices.get(name)
        details: dict[str, JsonValue] = {kind: asdict(getattr(use, kind)) for kind in MEASURES}
        if price is not None:
            inputs, outputs = use.input_tokens, use.output_tokens
            cost = {
                bound: float(price_of(price, getattr(inputs, bound), getattr(outputs, bound)))
                for bound in ("low", "high", "expected")
            }
            details["cost"] = {bound: round(amount, 6) for bound, amount in cost.items()}
            low, high, expected = low + cost["low"], high + cost["high"], expected + cost["expected"]
            answers += use.answers
            if likely is not None:
                likely = None if use.likely is None else likely + float(price_of(price, *use.likely))
        elif use.calls.high:
            unpriced.append(name)
        models[name if name not in models else f"{name} (vectors)"] = details
    currency = next((price.currency for price in prices.values()), "USD")
    return Cost(
        currency,
        low=round(low, 6),
        high=round(high, 6),
        expected=round(expected, 6),
        likely=None if likely is None else round(likely, 6),
        answers=answers,
        models=models,
        unpriced=tuple(dict.fromkeys(unpriced)),
    )


def money(amount: float) -> str:
    """Format a price: two decimals, or four if it is small."""
    return f"{amount:.2f}" if amount >= 0.1 or not amount else f"{amount:.4f}"


@dataclass(frozen=True)
class Approved:
    """An approved plan that a build must match, and its maximum cost."""

    plan: Plan
    max_cost: float | None = None

    def check_cost(self) -> None:
        """Raise BudgetReached if the likely cost (or, if it is unknown, the worst case) is too high.

        Raises ConfigurationError if a model has no price.
        """
        cost = self.plan.cost
        if self.max_cost is None:
            return
        if cost.unpriced:
            raise ConfigurationError(
                f"the cost of {', '.join(cost.unpriced)} is unknown and cannot be compared with a maximum: give its "
                "price per million tokens under `prices:` in the configuration"
            )
        most = cost.high if cost.likely is None else cost.likely
        if most <= self.max_cost:
            return
        if cost.likely is None:
            range_text = f"(about {money(cost.expected)} is expected)"
            why = " There are too few answers for a likely bound, so this is the worst case."
        else:
            source = f", estimated from {cost.answers:,} answers" if cost.answers else ""
            range_text = f"(about {money(cost.expected)} is expected{source}; worst case {money(cost.high)})"
            why = ""
        raise BudgetReached(
            f"the build may cost {money(most)} {cost.currency} {range_text}, more than the maximum of "
            f"{money(self.max_cost)}: nothing was made.{why} Allow more with --max-cost, change less at a time, or "
            "build with --budget-cost, which stops at that cost and keeps every paid answer"
        )

    def check(self, build: CorpusRun) -> None:
        """Raise GateRefused if a build differs from the plan; its corpus is checked once it has been read."""
        drifted = [*_parent_drift(self.plan, build), *_corpus_drift(self.plan, build)]
        if settings := changed(self.plan.settings.values, settings_of(build)):
            more = f" and {len(settings) - _MANY} more" if len(settings) > _MANY else ""
            drifted.append("settings differ: " + ", ".join(map(str, settings[:_MANY])) + more)
        if drifted:
            raise GateRefused(
                f"the plan is no longer valid: {'; '.join(drifted)}. Nothing was made: review a new plan "
                "(`indexmill plan -o FILE`) and build with it"
            )

    def beside(self, report: RunReport, seconds: float) -> dict[str, JsonValue]:
        """Return the planned and the actual numbers, by name, for the run's record."""
        plan = self.plan
        expected = plan.seconds
        return {
            "parts_made": {"planned": plan.parts.made, "actual": report.parts_made},
            "vectors_made": {"planned": plan.parts.vectors_made, "actual": report.total("vectors_made")},
            "llm_calls": {"planned": asdict(plan.llm_calls), "actual": report.total("llm_calls")},
            "llm_tokens": {
                "planned": asdict(Forecast.total((plan.llm_tokens.input, plan.llm_tokens.output))),
                "actual": report.total("llm_tokens"),
            },
            "embed_calls": {"planned": asdict(plan.embed_calls), "actual": report.total("embed_calls")},
            "embed_tokens": {"planned": asdict(plan.embed_tokens), "actual": report.total("embed_tokens")},
            "cost": {
                "planned": {
                    "low": plan.cost.low,
                    "expected": plan.cost.expected,
                    "likely": plan.cost.likely,
                    "high": plan.cost.high,
                },
                "actual": report.cost,
            },
            "seconds": {
                "planned": {"low": expected.low, "high": expected.high} if expected else None,
                "actual": round(seconds, 1),
            },
        }


def settings_of(build: CorpusRun) -> dict[str, Any]:
    """Return the inputs of a build other than its corpus; opens no model."""
    choice = build.choice
    encoder = {"backend": choice.backend, "precision": choice.precision}
    if choice.name:
        encoder |= {"name": choice.name, "digest": choice.digest}
    return {
        **build.configuration.published(),
        "models": {"encoder": encoder, "recogniser": build.models.recogniser()},
        "environment": environment_fingerprint(),
        "cold": build.cold,
    }


def _parent_drift(plan: Plan, build: CorpusRun) -> list[str]:
    was = (plan.parent.version, plan.parent.manifest) if plan.parent else None
    now = (build.parent.version, build.parent.digest) if build.parent else None
    if was == now:
        return []
    versions = [f"version {parent[0]} ({parent[1][:12]})" if parent else "no version" for parent in (was, now)]
    return [f"it was made for {versions[0]}, but the index is at {versions[1]}"]


def _corpus_drift(plan: Plan, build: CorpusRun) -> list[str]:
    if not build.corpus.is_read or build.corpus.plan.fingerprint == plan.corpus.fingerprint:
        return []
    corpus = build.corpus.plan
    shards = {shard.label: shard.digest for shard in corpus.shards}
    differ = Counter(shards.get(label) != plan.corpus.shards.get(label) for label in {*shards, *plan.corpus.shards})
    message = f"the corpus has {counted(corpus.documents, 'document')} where the plan has {plan.corpus.documents}"
    return [f"{message}, and {differ[True]} of {counted(differ.total(), 'shard')} differ"]
