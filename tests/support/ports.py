"""Ports for those who must know theirs before they listen."""

from __future__ import annotations

import random
import socket

# Below those that the system hands out by itself: nobody is given one of these between the look and the use of it.
# Above those that Ray takes for its workers.
PORTS = range(20_000, 32_000)
ATTEMPTS = 100


def free_port(address: str = "127.0.0.1") -> int:
    """By chance, so that test processes beside this one choose another."""
    chance = random.SystemRandom()
    for _ in range(ATTEMPTS):
        port = chance.choice(PORTS)
        with socket.socket() as free:
            try:
                free.bind((address, port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"none of {ATTEMPTS} ports of {address} is free")
