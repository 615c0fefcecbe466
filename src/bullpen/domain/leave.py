"""Leave to begin something for a member: how long this process may still act for it.

Asked as the last thing before a model or a command is begun, since a process may be frozen at any instruction and
thawed when somebody else is that member.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

Leave = Callable[[], Awaitable[float]]
"""For how many seconds from now it may be begun. Raises LeaseLost where nothing may any more."""


async def at_any_time() -> float:
    return math.inf
