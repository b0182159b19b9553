"""Hooks of coding agents: read events, recall for them, and store transcripts."""
