"""Namespaces that several agents share."""
