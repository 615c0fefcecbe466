"""Bullpen measured against the seeds' method and against the bare engines: `make bench`.

Everything is a ratio of things measured in one run and in turns (A B A B …), because
machines are noisy and absolute numbers age. The page `docs/benchmarks.md` is written
by it and says what each number means. Whole teams are in `bench.agents`, on a page of
their own.
"""
