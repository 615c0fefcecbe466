"""Unit tests of the command."""
