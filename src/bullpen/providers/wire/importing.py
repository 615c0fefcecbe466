"""The libraries that call models, imported by one thread at a time.

They import one another in circles. Python lets a second thread into such a circle rather than have both wait for ever,
and what it finds there is half made: it looks as if a package were missing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import RLock

from bullpen.errors import UsageError

INSTALL = "a library that calls models is missing: install Bullpen again, pip install --force-reinstall bullpen"

_NEEDED = ("line", "price")
_CLIENTS = {"anthropic": "anthropic_client", "openai": "openai_client", "openai-chat": "openai_client"}
_lock = RLock()


def import_libraries(provider: str) -> None:
    """All that the first reply of this provider's models needs: seconds, the first time. UsageError if some is
    missing."""
    with importing():
        try:
            for name in (*_NEEDED, *filter(None, [_CLIENTS.get(provider)])):
                import_module(f"bullpen.providers.wire.{name}")
        except ImportError as error:
            raise UsageError(INSTALL) from error


@contextmanager
def importing() -> Iterator[None]:
    """What is imported stays: to look through it again and again takes an eighth of the time, and once more in the
    middle of the work stops everybody for a tenth of a second. What is there now is never looked through again."""
    with _lock:
        was_on = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            gc.freeze()
            if was_on:
                gc.enable()
