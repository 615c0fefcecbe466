"""The pure part of Bullpen: what a task, a message, a member, a request, a turn and an event are.

No I/O, no asyncio, no clock: everything that a rule needs is passed in, so each
law here can be tested by itself and holds in every store alike.
"""
