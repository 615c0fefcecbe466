"""Whole teams measured: `make bench BENCH_ARGS=agents`.

The model is the tests' protocol server in a process of its own, so that what it costs is
nobody else's; the team is hosted in another, on a store on disk. Everything but the
model's wit is real: HTTP, the wire formats, tools, transcripts, flushes.
"""
