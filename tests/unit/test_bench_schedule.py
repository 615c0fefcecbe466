"""The schedule that a makespan is measured against: possible, and no shorter than can be."""

from __future__ import annotations

from bench.agents.schedule import (
    Job,
    anomaly,
    chains,
    list_schedule,
    lower_bound,
    random_board,
    steady_board,
)


def test_a_chain_takes_as_long_as_its_turns_without_the_last_report() -> None:
    chain = [Job(turns=3), Job(turns=4, blocked_by=(1,)), Job(turns=2, blocked_by=(2,))]
    assert chains(chain) == [6, 4, 1]
    assert list_schedule(chain, 8) == lower_bound(chain, 8) == 6


def test_a_member_is_not_free_before_its_report() -> None:
    """Two tasks of three turns by one member: completed after two turns, free after three, completed after five."""
    assert list_schedule([Job(turns=3), Job(turns=3)], 1) == lower_bound([Job(turns=3), Job(turns=3)], 1) == 5


def test_the_schedule_of_a_board_is_never_shorter_than_its_bound() -> None:
    for seed in range(20):
        jobs = random_board(40, seed=seed)
        assert all(blocker < number for number, job in enumerate(jobs, 1) for blocker in job.blocked_by)
        assert list_schedule(jobs, 4) >= lower_bound(jobs, 4)


def test_the_board_that_is_measured_has_a_schedule_that_no_other_can_beat_and_that_needs_no_even_turns() -> None:
    board = steady_board(100, 8)
    assert list_schedule(board, 8) == lower_bound(board, 8)
    assert anomaly(board, 8) <= 1.005


def test_turns_of_uneven_length_cost_other_boards_several_turns() -> None:
    board = random_board(100, seed=7)
    assert list_schedule(board, 8) == lower_bound(board, 8)
    assert anomaly(board, 8) > 1.05
