"""The errors that a back-end raises when a language model does not answer.

    LlmError                retry  billed
    ├── LlmUnreachable      yes    no if nothing was sent, else maybe
    ├── LlmBusy             yes    no; maybe if a gateway timed out
    ├── LlmRejected         no     no
    ├── LlmUnusable         no     the billed tokens; maybe if the answer was not read to its end
    └── LlmForbidden        no     no; exit code 2

A message says what happened and which setting to check. It never repeats what an endpoint wrote, which may contain the
prompt or the key.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from indexmill.errors import IndexmillError
from indexmill.models.llm import Completion


class LlmError(IndexmillError):
    """A request got no usable answer. Picklable.

    retry: True if the same request may succeed later. retry_after: the number of seconds that the endpoint asks to
    wait; None if it does not say. billed: whether the work was billed: ``no``, ``maybe``, or the billed completion.
    useless_response: True if the endpoint returned a success status, but no usable answer. overloaded: True if it has
    more to do than it can: fewer calls at once may help.
    """

    useless_response = False
    overloaded = False

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
    """The connection failed or was lost, a timeout passed, or the response does not follow the protocol."""


class LlmBusy(LlmError):
    """The endpoint is busy or failed: 408, 409, 425, 429 and 5xx."""


class LlmRejected(LlmError):
    """This request will never succeed: 400, 413, 422 and similar statuses.

    of_prompt: True if the cause is known to be the prompt's length or subject, not the request's form. filtered: True
    if the cause is the subject.
    """

    of_prompt = False
    filtered = False


class LlmUnusable(LlmError):
    """The answer is unusable: cut off, withheld, endless, or not in the requested form."""


class LlmForbidden(LlmError):
    """No request will succeed until a setting or an account is corrected; the run stops."""

    exit_code: ClassVar[int] = 2
