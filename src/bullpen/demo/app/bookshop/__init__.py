"""A small bookshop."""
