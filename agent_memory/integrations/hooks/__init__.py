"""Hooks of coding agents: what their events say, what is recalled for them, what is stored."""
