"""Conversion between OpenAI chat messages and the formats of other providers and frameworks."""
