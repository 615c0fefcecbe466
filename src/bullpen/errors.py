"""Every exception that Bullpen raises on purpose, drawn as one tree.

    BullpenError
      UsageError             the caller's mistake: one line on the terminal, exit 2
        NotAllowed             a member tried what only another may do
      StoreError
        NotFound               no such team, member, task, message, request
        Conflict               the stored state says no
          LeaseLost              an old incarnation, or a worker whose lease lapsed
          AlreadyClaimed         somebody else has the task, or the claimer has another
          CycleRefused           the edge would close a cycle of blockers
          CheckRequired          the task has a check that has not passed
          ToolCallsOpen          mail may not stand between a call and its result
          ShuttingDown           who is asked to shut down claims nothing more
          TeamDeleted            the team has been deleted
        StoreUnavailable       disk full, no connection, locked: worth a retry
          StoreRemoved           somebody deleted it while it was in use
        SchemaTooNew           the store was written by a newer Bullpen
      ProviderError          a model could not be asked
        RateLimited            too many requests (retry_after_seconds)
        Overloaded             5xx, overloaded, timed out, cut off: worth a retry
        ContextOverflow        the request is longer than the model's window
        Unauthorised           no key, or one that is refused
        UnknownModel           no such model, or no such provider
        BadRequest             the provider refuses the request as it is
        BadReply               the reply makes no sense
      SandboxUnavailable     commands cannot be confined here
      RunnerUnavailable      workers cannot be started where they were to be
      ToolError              its text is for the model

The docstring of an exception is its message when it is raised without one, so
it says what happened and what to do. Whether an error is worth a retry is the
property `retryable` of its type, decided here and nowhere else.
"""

from __future__ import annotations

import inspect
from typing import ClassVar


class BullpenError(Exception):
    """Something went wrong in Bullpen."""

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or inspect.getdoc(type(self)))


class UsageError(BullpenError):
    """That call makes no sense as it is; look at its arguments."""

    exit_code = 2


class NotAllowed(UsageError):
    """Only the owner or the lead may do that."""


class StoreError(BullpenError):
    """The store refused or failed."""

    exit_code = 3


class NotFound(StoreError):
    """There is no such thing in the store."""

    exit_code = 2


class Conflict(StoreError):
    """The stored state does not allow that any more; look again."""

    exit_code = 1


class LeaseLost(Conflict):
    """This incarnation is over: the member was restarted or declared dead. Stop, write nothing more."""


class AlreadyClaimed(Conflict):
    """Somebody else has this task; take another."""


class CycleRefused(Conflict):
    """These blockers would wait for each other for ever."""


class CheckRequired(Conflict):
    """This task has a check; it is completed only when the check has passed."""


class ToolCallsOpen(Conflict):
    """Tool calls are still open: finish them before mail is taken."""


class ShuttingDown(Conflict):
    """This member is asked to shut down: it claims nothing more."""


class TeamDeleted(Conflict):
    """This team has been deleted; its board and mail can still be read."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or written just now; nothing was changed, try again."""

    retryable = True


class StoreRemoved(StoreUnavailable):
    """The store was removed while it was in use: begin anew, or put it back and start this again."""

    retryable = False


class SchemaTooNew(StoreError):
    """This store was written by a newer Bullpen; upgrade this one."""


class ProviderError(BullpenError):
    """The model could not be asked."""

    exit_code = 3


class RateLimited(ProviderError):
    """The provider asks to wait before the next request."""

    retryable = True

    def __init__(self, message: str | None = None, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Overloaded(ProviderError):
    """The provider is overloaded, out of reach, or broke off in the middle."""

    retryable = True

    def __init__(self, message: str | None = None, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class ContextOverflow(ProviderError):
    """The conversation is longer than the model's window."""


class Unauthorised(ProviderError):
    """The provider refuses the key: set the right one, or choose another model."""


class UnknownModel(ProviderError):
    """There is no such model."""


class BadRequest(ProviderError):
    """The provider refuses the request as it is."""


class BadReply(ProviderError):
    """The model's reply makes no sense; asking again may help."""

    retryable = True


class SandboxUnavailable(BullpenError):
    """Commands cannot be confined on this machine."""

    exit_code = 3


class RunnerUnavailable(BullpenError):
    """Workers cannot be started there."""

    exit_code = 3


class ToolError(BullpenError):
    """The tool could not do that."""
