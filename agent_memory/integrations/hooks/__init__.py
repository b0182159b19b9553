"""Hooks for coding agents: they read the agents' events, recall messages, and store transcripts."""
