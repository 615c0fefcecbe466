"""The laws of the domain, without any store (and once with the one in memory)."""
