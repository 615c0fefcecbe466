"""The tools, one file per family, behind one registry."""
