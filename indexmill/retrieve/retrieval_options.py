"""The options of a retrieval, checked once and passed on as one object."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypedDict

import numpy.typing as npt

from indexmill.errors import BadInput
from indexmill.mistakes import unknown_setting
from indexmill.retrieve.filters import Filter, Where
from indexmill.retrieve.retrieval_method import check_count
from indexmill.retrieve.rights import Principals, principals_of

if TYPE_CHECKING:
    from indexmill.models.reranker import Reranker

_PLAIN = (str, int, float, bool, type(None))


class RetrievalKeywords(TypedDict, total=False):
    """The fields of ``RetrievalOptions`` as keywords of a call."""

    method: str | None
    k: int
    explain: bool
    where: Where | None
    parameters: Mapping[str, object] | None
    rerank: Reranker | None
    rerank_depth: int
    principals: Principals
    vectors: npt.ArrayLike | None
    encode_names: bool
    names: Sequence[Sequence[str]] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class RetrievalOptions:
    """The options of a retrieval. Two objects are equal if single questions with these options may share a batch.

    method: by default the best that the snapshot supports. k: the maximum number of hits. explain: False saves the time
    for explanations.
    where: a filter of documents by metadata, such as ``{"year": {">=": 2024}, "lang": ["en", "de"]}``: see
    ``indexmill.retrieve.filters``. Other documents are excluded and affect no score.
    parameters: values that replace the snapshot's settings of the method, such as ``{"title": 0.1}`` for dense, or
    ``{"dense.title": 0.1}`` for a method that fused combines.
    rerank: a reranker of the passages among the first ``rerank_depth`` hits, such as ``indexmill.open_reranker``
    returns: see ``indexmill.retrieve.rerank``.
    principals: groups to read as, if the snapshot has access control (``access``). Documents those groups may not read
    are excluded. Without groups, only documents for everyone are searched; ``indexmill.UNRESTRICTED`` reads all.
    vectors: the questions' vectors, ``(n_questions, d) float32``, computed elsewhere with the snapshot's encoder, so
    that no encoder is needed here. Names in a question that match no entity are then ignored, unless ``encode_names``
    is True: the snapshot's encoder encodes them, as it does without ``vectors``.
    names: per question, the entities that the caller's recogniser found (``LlmRecogniser.question_names``), in addition
    to the names that occur in the question.

    Raises BadInput for a count below 1, a method or parameters of the wrong type, and a malformed filter or principals.
    """

    method: str | None = None
    k: int = 5
    explain: bool = True
    where: Where | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    rerank: Reranker | None = None
    rerank_depth: int = 50
    principals: Principals = None
    vectors: npt.ArrayLike | None = None
    encode_names: bool = False
    names: Sequence[Sequence[str]] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.method, str | None):
            raise BadInput(f"method= is {self.method!r:.200}; expected the name of a method")
        if not isinstance(self.parameters, Mapping | None):
            raise BadInput(f"parameters= is {self.parameters!r:.200}; expected a mapping of settings")
        checked = {
            "k": check_count("k", self.k),
            "explain": bool(self.explain),
            "rerank_depth": check_count("rerank_depth", self.rerank_depth),
            "where": None if self.where is None else Filter.of(self.where),
            "parameters": self.parameters or {},
            "principals": principals_of(self.principals),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, options: RetrievalOptions | None, changes: Mapping[str, Any]) -> Self:
        """Return options, or the defaults for None, with changes. Raises BadInput for an unknown option."""
        names = [option.name for option in fields(cls)]
        for name in changes:
            if name not in names:
                raise BadInput(f"{name}: {unknown_setting(name, names)}")
        return cls(**{**{name: getattr(options, name) for name in names if hasattr(options, name)}, **changes})

    @cached_property
    def _key(self) -> Hashable:
        """The key by which options are compared; options that cannot be compared are equal only to themselves."""
        if self.vectors is not None or self.names is not None:
            return id(self)
        # With their types: 1, 1.0 and True are equal but mean different things.
        settings = tuple((name, type(value), value) for name, value in self.parameters.items())
        if not all(kind in _PLAIN for _, kind, _ in settings):
            return id(self)
        shared = (self.method, self.k, self.explain, self.where, self.principals, settings)
        return (*shared, id(self.rerank), self.rerank_depth)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RetrievalOptions) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)
