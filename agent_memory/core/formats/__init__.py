"""Conversion of items between the formats of providers and chat messages."""
