"""A question that is open until somebody answers it: a plan, a shutdown, a permission.

    open ──> answered | expired | superseded | cancelled        (one step, once, for ever)

Only the one asked may answer. A shutdown is bound to an incarnation and a plan
or permission to a digest, so an answer can never be used for something else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from bullpen.domain.codec import encode
from bullpen.domain.text import name_key
from bullpen.errors import Conflict, NotAllowed

PREVIEW_LENGTH = 500


class RequestKind(StrEnum):
    PLAN = "plan"
    SHUTDOWN = "shutdown"
    PERMISSION = "permission"


class RequestStatus(StrEnum):
    OPEN = "open"
    ANSWERED = "answered"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"


class PermissionScope(StrEnum):
    """How far a yes to a permission reaches."""

    ONCE = "once"
    TEAM = "team"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    team_id: int
    id: int
    kind: RequestKind
    asker: str
    asked: str
    content: str = ""
    digest: str = ""
    incarnation: int | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    status: RequestStatus = RequestStatus.OPEN
    approved: bool | None = None
    reason: str = ""
    scope: PermissionScope | None = None
    created_at: datetime
    open_until: datetime | None = None
    closed_at: datetime | None = None

    @property
    def asked_key(self) -> str:
        return name_key(self.asked)

    @property
    def asker_key(self) -> str:
        return name_key(self.asker)


def digest_of(value: Any) -> str:
    """The same plan or arguments, the same digest; anything else, another."""
    canonical = json.dumps(encode(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def answer(
    request: Request,
    *,
    by: str,
    approve: bool,
    reason: str = "",
    scope: PermissionScope | None = None,
    at: datetime,
) -> Request:
    """The answered request; NotAllowed for anyone who was not asked, Conflict when it is closed."""
    if name_key(by) != request.asked_key:
        raise NotAllowed(f"request {request.id} was put to {request.asked}: only they may answer it")
    closed = close(request, RequestStatus.ANSWERED, at=at)
    return replace(closed, approved=approve, reason=reason, scope=scope)


def close(request: Request, status: RequestStatus, *, at: datetime) -> Request:
    """The one step out of `open`."""
    if status is RequestStatus.OPEN:
        raise ValueError("a request is opened by being created")
    if request.status is not RequestStatus.OPEN:
        raise Conflict(f"request {request.id} is already {request.status}; nothing was changed")
    return replace(request, status=status, closed_at=at)


def facts_of(request: Request) -> dict[str, Any]:
    """What an event tells of a request."""
    return {
        "request": request.id,
        "request_kind": request.kind,
        "asker": request.asker,
        "asked": request.asked,
        "status": request.status,
        "approved": request.approved,
        "reason": request.reason,
        "text": request.content[:PREVIEW_LENGTH],
    }
