"""The errors that a back-end raises when a language model does not answer.

    LlmError                retry  billed
    ├── LlmUnreachable      yes    no where nothing was sent, else maybe
    ├── LlmBusy             yes    no; maybe where a gateway gave up waiting for the model
    ├── LlmRejected         no     no
    ├── LlmUnusable         no     what was billed; maybe where it was not read to its end
    └── LlmForbidden        no     no; exit code 2

A message says what happened and which setting to look at. It never repeats what an endpoint wrote, which may hold the
prompt or the key.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from indexmill.errors import IndexmillError
from indexmill.models.llm import Completion


class LlmError(IndexmillError):
    """A request without a usable answer; picklable.

    retry: whether the same request may succeed later. retry_after: seconds after which the endpoint wants to be asked
    again, None where it said nothing. billed: whether the work is on the bill: ``no``, ``maybe``, or what was billed.
    answered: whether a status of success came, with something that is no answer.
    """

    answered = False

    def __init__(
        self,
        message: str,
        *,
        retry: bool = False,
        retry_after: float | None = None,
        billed: Literal["no", "maybe"] | Completion = "no",
    ) -> None:
        super().__init__(message)
        self.retry = retry
        self.retry_after = retry_after
        self.billed = billed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, self.__dict__


class LlmUnreachable(LlmError):
    """No connection, a dropped one, no answer in time, or an answer that is none of the protocol."""


class LlmBusy(LlmError):
    """The endpoint asks to come back later, or failed: 408, 409, 425, 429 and 5xx."""


class LlmRejected(LlmError):
    """This request will never work: 400, 413, 422 and the like.

    of_prompt: true if the cause is known to be the prompt's text, length or subject, not the form of the request.
    filtered: true if the cause is its subject.
    """

    of_prompt = False
    filtered = False


class LlmUnusable(LlmError):
    """An answer came, and is of no use: cut off, withheld, without end, or not of the form that was asked for."""


class LlmForbidden(LlmError):
    """No request will work until a setting or an account is put right; the run stops."""

    exit_code: ClassVar[int] = 2
