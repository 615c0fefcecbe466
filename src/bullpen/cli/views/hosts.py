"""Who runs a team: every command that only writes a row says so."""

from __future__ import annotations

from typing import Any

from bullpen.domain.member import Worker
from bullpen.stores import is_shared, shown
from bullpen.team.hosts import Hosts


def hosts_line(hosts: Hosts, store: str = "") -> str:
    """`store`: its URL, of which a worker would have to know."""
    name = hosts.team.name
    if hosts.hosting:
        return f"team {name} is hosted by " + ", ".join(map(_where, hosts.hosting))
    if hosts.team.deleted_at is not None:
        return f"team {name} has been deleted"
    if hosts.willing:
        return f"nobody hosts team {name} just now, {_where(hosts.willing[0])} may take it"
    if is_shared(store):
        return f"nobody hosts team {name} yet: `bullpen worker --store {shown(store)}` does"
    return f"nobody hosts team {name}: `bullpen resume {name}` does"


def hosts_document(hosts: Hosts) -> list[dict[str, Any]]:
    return [{"worker": host.id, "host": host.host, "pid": host.pid} for host in hosts.hosting]


def _where(worker: Worker) -> str:
    return f"worker {worker.id} on {worker.host} (pid {worker.pid})"
