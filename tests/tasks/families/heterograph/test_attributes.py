"""The attributes of important entities: written once for what they are made of, by a model or without one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from schemas.config import LlmSettings
from storage.folder import FolderStore, init_folder
from storage.receipts import Receipt
from storage.table_blobs import read_table
from tasks.core.part_runner import PartSpec
from tasks.core.stage import WHOLE
from tasks.families.heterograph import attribute_inputs as hetero_first
from tasks.families.heterograph.attributes import STAGE, WRITER
from tasks.families.heterograph.tables import HETERO_MADE, HETERO_READ
from tasks.families.heterograph.text_inputs import ReadingSettings
from tasks.families.heterograph.writing import TextSettings
from tests.deep import examples
from tests.storage.quick import quick_folder
from tests.tasks.families.heterograph.graphs import Corpus, corpus_of, put_corpus, unit
from tests.tasks.making import OPENING, UNASKED, Parts, bound, numbers_of

NAMES = ["ada marl", "fenna rook", "goran stave", *(f"town {letter}" for letter in "abcdefghijklmnopqrst")]
SHAPING = {"units": 8, "relations": 4, "input_tokens": 300, "seed": 0}


def bridges(edits: Mapping[int, str] | None = None) -> Corpus:
    """Twenty passages, each of which names a town and two of three people; edits: other texts of the first units."""
    people, passages = NAMES[:3], []
    for number, town in enumerate(NAMES[3:]):
        one, other = people[number % 3], people[(number + 1) % 3]
        said = (edits or {}).get(number, f"{one.title()} built the bridge of {town.title()} with {other.title()}.")
        passages.append(
            [
                unit(said, one, other, town, says=((one, "built a bridge in", town), (one, "worked with", other))),
                unit(f"{town.title()} lies on a river.", town),
            ]
        )
    return corpus_of(*passages)


class Made:
    """The parts of a corpus: what attributes are made of, and the attributes of each shard."""

    def __init__(
        self, store: FolderStore, corpus: Corpus, reuse: Mapping[str, Receipt] | None = None, shards: int = 2
    ) -> None:
        self.store, self.parts, self.reuse = store, Parts(store), reuse or {}
        self.writer = bound(
            WRITER, LlmSettings(), heterograph={"attribute_tokens": 40, "input_tokens": 300}
        ).fingerprint
        held = put_corpus(store, corpus, NAMES, shards=shards)
        held = {name: one for name, one in held.items() if not name.startswith(("mentions/", "extracted/"))}
        first = PartSpec(WHOLE, held, ReadingSettings(**SHAPING, writer=self.writer))
        self.read = self.parts.make(hetero_first.STAGE, first).receipt.outputs
        self.labels = [f"e{shard}" for shard in range(shards)]

    def spec(self, label: str) -> PartSpec:
        """The part of a shard of entities, as a build wants it."""
        inputs = {name: self.read[f"attribute_{name}/{label}"] for name in ("read", "made")}
        opened = {**UNASKED, "opening": OPENING}
        return PartSpec(
            label, inputs, TextSettings(encoder=numbers_of(self.store), writer=self.writer, sources=None, **opened)
        )

    def reused(self, label: str) -> list[Receipt]:
        return [self.reuse[label]] if label in self.reuse else []

    def make(self) -> dict[str, Receipt]:
        """Make the parts; their counts are summed up in `counts`."""
        self.counts = Counter[str]()
        found = {}
        for label in self.labels:
            made = self.parts.make(STAGE, self.spec(label), self.reused(label))
            found[label] = made.receipt
            self.counts.update(made.counts)
        return found

    def wanted(self) -> dict[str, str]:
        """What the attribute of each entity is made of."""
        tables = [read_table(self.store, self.read[f"attribute_made/{label}"], HETERO_MADE) for label in self.labels]
        return {row["owner"]: row["made_of"] for table in tables for row in table.to_pylist()}


@examples(6, deep=12)
@given(st.integers(0, 19), st.sampled_from(("Nobody came.", "The bridge fell.")))
def test_an_edit_redoes_only_attributes_that_read_another_text(number: int, text: str) -> None:
    with quick_folder() as folder:
        store = init_folder(folder / "store")
        before = Made(store, bridges())
        after = Made(store, bridges({number: text}), reuse=before.make())
        after.make()

        def read(made: Made) -> dict[str, set[str]]:
            found: dict[str, set[str]] = {}
            for label in made.labels:
                for row in read_table(store, made.read[f"attribute_read/{label}"], HETERO_READ).to_pylist():
                    found.setdefault(row["owner"], set()).add(row["text"])
            return found

        was, now = read(before), read(after)
        assert after.counts["attributes_made"] == sum(was.get(owner) != texts for owner, texts in now.items())


def test_a_renamed_shard_copies_its_rows(store: FolderStore) -> None:
    (both,) = Made(store, bridges(), shards=1).make().values()
    split = Made(store, bridges(), reuse={"e0": both, "e1": both})
    split.make()
    assert (split.counts["attributes_made"], split.counts["stand_ins"]) == (0, 0)
    assert split.counts["attributes_reused"] == len(split.wanted())
