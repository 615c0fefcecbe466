"""Who runs a team, from one look at its members and workers."""

from __future__ import annotations

from pathlib import Path

from bullpen.domain.member import Autonomy
from bullpen.team.hosts import find_hosts
from tests.support.stores import create_team, opened


async def test_who_is_to_be_taken_is_seen_in_the_same_look_as_who_hosts(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bullpen.db"
    async with opened(url) as store:
        team, user = await create_team(store)
        assert not (await find_hosts(store, team)).has_wanted
        await store.spawn_member(user, "ana", prompt="Work.", autonomy=Autonomy.AUTO)
        assert (await find_hosts(store, team)).has_wanted
        async with opened(url) as machine:
            worker = await machine.register_worker(slots=1)
            ana = await machine.host_member(worker.id)
            assert ana is not None
            hosts = await find_hosts(store, team)
            assert [one.id for one in hosts.hosting] == [ana.worker_id]
            assert not hosts.has_wanted
        # The process is gone without a word: others will take her from it.
        hosts = await find_hosts(store, team)
        assert hosts.hosting == ()
        assert hosts.has_wanted
