"""Looking on while somebody else runs a team: the news so far, then each as it comes, until nobody runs it any more,
or nothing moves on the workers that host it.

It reads only. What it shows comes from the log, and whether the team is still run from its hosts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from bullpen.cli.call import Call
from bullpen.cli.live.news import draw_news
from bullpen.cli.live.picture import draw_picture
from bullpen.cli.live.screen import Screen
from bullpen.cli.pipe import while_read
from bullpen.cli.text import json_text
from bullpen.domain.budget import limits_of
from bullpen.domain.codec import encode
from bullpen.domain.event import Event
from bullpen.domain.standing import Standing
from bullpen.team import Team
from bullpen.team.hosts import Hosts, find_hosts, find_rest
from bullpen.team.progress import Progress

# A host that is killed rings no bell, and time goes by in the picture.
LOOK_AGAIN_SECONDS = 1.0

Show = Callable[[list[str]], None]


class Looking:
    """`recent` is how much of what has been is told; None: all."""

    def __init__(self, call: Call, team: Team, *, recent: int | None) -> None:
        self._call = call
        self._team = team
        self._recent = recent
        self.progress = Progress()

    async def until_over(self, show: Show) -> tuple[Hosts, Standing | None]:
        """Returns who would host it next, and how it stands if workers still host it."""
        news = await self._catch_up(self._recent)
        async with while_read(), self._team.store.listen_events(self._team.id) as bell:
            while True:
                bell.clear()
                # Read again each time: the lead may name it, or delete it.
                self._team.record = await self._team.store.get_team(self._team.id)
                hosts = await find_hosts(self._team.store, self._team.record)
                standing = await find_rest(self._team.store, hosts)
                # In this order: what was written before its host left, or before it came to rest, is told.
                news += await self._catch_up(None)
                show(news)
                if standing is not None or self._is_over(hosts):
                    return hosts, standing
                news = []
                await bell.wait(LOOK_AGAIN_SECONDS)

    async def _catch_up(self, recent: int | None) -> list[str]:
        told: deque[str] = deque(maxlen=recent)
        while events := await self._team.list_events(after=self.progress.position):
            for event in events:
                self.progress.follow(event)
                told += self._tell(event)
        return list(told)

    def _tell(self, event: Event) -> list[str]:
        if self._call.is_json:
            return [json_text(encode(event))]
        return self._call.draw(lambda page: draw_news(page, event, self.progress))

    def _is_over(self, hosts: Hosts) -> bool:
        # From one look: by what the log says since, somebody may have been taken whose host was not seen yet.
        return not hosts.hosting and not (hosts.has_wanted and hosts.willing and not self.progress.is_deleted)

    # -- where it is shown ------------------------------------------------------------------------

    def on(self, screen: Screen) -> Show:
        budget = limits_of(self._team.record.settings).max_cost_usd

        def show(news: list[str]) -> None:
            now = self._team.store.clock.now()
            picture = self._call.draw(lambda page: draw_picture(page, self.progress, now=now, budget_usd=budget))
            screen.show(news, ["", *picture])

        return show


def in_lines(news: list[str]) -> None:
    for line in news:
        print(line, flush=True)
