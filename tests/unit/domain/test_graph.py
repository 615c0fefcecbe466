"""The dependency graph against a brute force that cannot be wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.domain.graph import find_path, has_cycle
from bullpen.domain.task import check_edge
from bullpen.errors import CycleRefused

nodes = st.integers(1, 7)
graphs = st.dictionaries(nodes, st.lists(nodes, max_size=4, unique=True), max_size=7)


def shortest_length(edges: Mapping[int, Sequence[int]], start: int, goal: int) -> int | None:
    """Steps from one to the other, by walking all ways at once, as often as there are nodes."""
    reached, steps = {start}, 0
    while goal not in reached:
        further = reached | {blocker for node in reached for blocker in edges.get(node, ())}
        if further == reached:
            return None
        reached, steps = further, steps + 1
    return steps


def reaches_itself(edges: Mapping[int, Sequence[int]], node: int) -> bool:
    return any(shortest_length(edges, blocker, node) is not None for blocker in edges.get(node, ()))


@given(graphs, nodes, nodes)
def test_a_path_is_found_exactly_when_there_is_one_and_is_the_shortest(
    edges: dict[int, list[int]], start: int, goal: int
) -> None:
    path = find_path(edges, start, goal)
    length = shortest_length(edges, start, goal)
    if path is None:
        assert length is None
        return
    assert (path[0], path[-1], len(path) - 1) == (start, goal, length)
    assert all(after in edges[before] for before, after in pairwise(path))


@given(graphs)
def test_a_cycle_is_seen_exactly_when_some_task_waits_for_itself(edges: dict[int, list[int]]) -> None:
    assert has_cycle(edges) == any(reaches_itself(edges, node) for node in edges)


@given(graphs, nodes, nodes)
def test_an_edge_is_refused_exactly_when_it_closes_a_cycle(
    edges: dict[int, list[int]], blocker: int, dependent: int
) -> None:
    """Whatever is let in one by one leaves a graph without cycles."""
    acyclic: dict[int, list[int]] = {}
    for node, blockers in edges.items():
        for other in blockers:
            added = {**acyclic, node: [*acyclic.get(node, []), other]}
            path = find_path(acyclic, other, node)
            if has_cycle(added):
                with pytest.raises(CycleRefused, match=f"#{node}"):
                    check_edge(other, node, path)
            else:
                check_edge(other, node, path)
                acyclic = added
    with pytest.raises(CycleRefused):
        check_edge(blocker, blocker, None)
    assert not has_cycle(acyclic)


def test_a_long_chain_is_no_problem() -> None:
    edges = {number: [number - 1] for number in range(2, 5000)}
    path = find_path(edges, 4999, 1)
    assert path is not None
    assert len(path) == 4999


def test_the_cycle_is_shown_in_the_order_in_which_they_wait() -> None:
    with pytest.raises(CycleRefused, match="#1 -> #3 -> #2 -> #1"):
        check_edge(3, 1, [3, 2, 1])
