"""Vectors on a Qdrant server, or in qdrant-client's local mode (for trials and tests)."""
