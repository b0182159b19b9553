"""Combines several memories. Reads query all memories. A rule selects the memory for writes."""
