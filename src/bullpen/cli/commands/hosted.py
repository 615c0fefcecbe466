"""The answer of a command that only writes a row: what was written, and who will act on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bullpen.cli.call import Call
from bullpen.cli.page import Page, Painted
from bullpen.cli.views.hosts import hosts_document, hosts_line
from bullpen.team import Team
from bullpen.team.hosts import find_hosts


async def show_hosted(call: Call, team: Team, document: Mapping[str, Any], lines: Sequence[str]) -> None:
    hosts = await find_hosts(team.store, team.record)

    def draw(page: Page) -> None:
        for line in lines:
            page.line(line)
        page.line(Painted(hosts_line(hosts, team.store.url), "dim" if hosts.hosting else "yellow"))

    call.show({**document, "team": team.name, "hosts": hosts_document(hosts)}, draw)
