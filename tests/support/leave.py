"""What a worker's lease says each time it is asked whether something may begin."""

from __future__ import annotations

from bullpen.errors import LeaseLost

LONG = 60.0
# Of a worker that was frozen for longer than its lease between asking and beginning.
FROZEN = -1.0
TAKEN_OVER = LeaseLost("others are its members by now")


class Leave:
    def __init__(self, *answers: float | LeaseLost) -> None:
        self.left = list(answers)

    async def __call__(self) -> float:
        answer = self.left.pop(0)
        if isinstance(answer, LeaseLost):
            raise answer
        return answer
