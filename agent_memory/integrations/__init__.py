"""Adapters for agent frameworks, imports of other programs' data, and hooks of coding agents.

An adapter's module is named after its framework, which must be installed. All other modules need
no further package.
"""
