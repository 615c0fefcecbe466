"""The human's wish that a member compresses its memory: a row that the member finds before its next request."""

from __future__ import annotations

import pytest

from bullpen.domain.event import EventKind
from bullpen.errors import NotAllowed, NotFound, UsageError
from tests.conformance.board import Board


async def test_a_wish_for_compaction_stands_in_the_members_row_until_it_has_compacted(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.want_compaction(board.user, "ANA", "the  schema\n")
    assert (await board.member("ana")).counters["compact"] == "the  schema"
    event = (await board.store.list_events(board.id))[-1]
    assert (event.kind, event.actor, event.data["member"]) == (EventKind.COMPACTION_WANTED, "user", "ana")
    await board.store.record_turn(ana, "compaction", {"text": "short", "keep_from": 1}, counters={"compact": None})
    assert "compact" not in (await board.member("ana")).counters


async def test_a_wish_for_compaction_is_refused_for_whoever_has_no_transcript(board: Board) -> None:
    await board.external("cat")
    for name in ("cat", "user"):
        with pytest.raises(UsageError, match="has no transcript here"):
            await board.store.want_compaction(board.user, name)
    with pytest.raises(NotFound, match="no member 'nobody'"):
        await board.store.want_compaction(board.user, "nobody")


async def test_a_teammate_cannot_have_another_ones_memory_compressed(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.teammate("ben")
    with pytest.raises(NotAllowed):
        await board.store.want_compaction(ana, "ben")
