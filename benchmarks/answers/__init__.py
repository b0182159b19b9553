"""Measures whether a model answers correctly from a memory, as judged by another model."""
