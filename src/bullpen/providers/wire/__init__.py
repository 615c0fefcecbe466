"""Models behind HTTP, through pydantic-ai's model layer.

pydantic-ai and the clients below it are imported by the modules of this folder other than `provider`, and by
nothing else; `provider` imports them when a model is first called.
"""

from __future__ import annotations

from bullpen.providers.wire.provider import WireProvider

__all__ = ["WireProvider"]
