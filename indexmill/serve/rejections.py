"""Errors that reject requests, and the status, code and message of the response to any error.

A message about the caller's own mistake says what to do. For any other error the caller gets the kind of error and the
request's id. The server's log has the reason under this id, so that paths and endpoints stay private.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from indexmill.errors import (
    BadInput,
    BudgetReached,
    FamilyNotFound,
    IndexmillError,
    ModelUnavailable,
    NotFound,
    SnapshotNotFound,
)
from indexmill.models.llm_errors import LlmError


class RejectedRequest(IndexmillError):
    """A request that is rejected before it reaches the index."""

    status: ClassVar[int] = 400
    code: ClassVar[str] = "bad_request"
    retry_after: float | None = None
    """The number of seconds until a retry makes sense; None if it never does."""


class TooLarge(RejectedRequest):
    """The body is larger than the limit."""

    status, code = 413, "too_large"


class TooSlow(RejectedRequest):
    """The body did not arrive in time."""

    status, code = 408, "too_slow"


class WrongHost(RejectedRequest):
    """The request names a host other than the server's."""

    status, code = 421, "wrong_host"


class WrongType(RejectedRequest):
    """The content type of the body is not JSON."""

    status, code = 415, "not_json"


class CrossSiteRequest(RejectedRequest):
    """The request was made by another site's page, not by following a link."""

    status, code = 403, "embedded"


class NoExplorer(RejectedRequest):
    """The request is for a page, but the package that draws pages is not installed."""

    status, code = 501, "no_explorer"


class Unauthorised(RejectedRequest):
    """The token is missing or unknown."""

    status, code = 401, "unauthorised"


class TooMany(RejectedRequest):
    """The caller exceeded the rate limit."""

    status, code = 429, "rate_limited"

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Busy(RejectedRequest):
    """Too many requests are waiting."""

    status, code = 503, "busy"
    retry_after = 1.0


class Draining(RejectedRequest):
    """The server is shutting down."""

    status, code = 503, "draining"
    retry_after = 1.0


class TooLate(RejectedRequest):
    """The request missed its deadline."""

    status, code = 504, "deadline"


class ErrorReply(NamedTuple):
    """The response to an error."""

    status: int
    code: str
    message: str
    retry_after: float | None = None
    logged: bool = False
    """True if the cause must be logged."""


_CALLERS = (
    (FamilyNotFound, 404, "family_not_found"),
    (SnapshotNotFound, 404, "snapshot_not_found"),
    (NotFound, 404, "not_found"),
    (BadInput, 400, "bad_input"),
)
"""The errors whose messages are sent to the caller."""

_OURS = (
    (LlmError, 502, "model_failed", "the language model did not answer; try again later"),
    (BudgetReached, 503, "budget_reached", "the budget of this server is used up"),
    (ModelUnavailable, 503, "model_unavailable", "this server lacks a model that the request needs"),
    (IndexmillError, 503, "index_unavailable", "the index cannot be read at the moment; try again later"),
)
"""The errors whose messages are only logged."""


def failure_of(error: BaseException) -> ErrorReply:
    """Return the response to an error."""
    if isinstance(error, RejectedRequest):
        return ErrorReply(error.status, error.code, str(error), error.retry_after)
    for kind, status, code in _CALLERS:
        if isinstance(error, kind):
            return ErrorReply(status, code, str(error))
    for family, status, code, message in _OURS:
        if isinstance(error, family):
            return ErrorReply(status, code, f"{message}; the server's log has the reason under request_id", logged=True)
    message = "the server failed; its log has the reason under request_id"
    return ErrorReply(500, "internal", message, logged=True)
