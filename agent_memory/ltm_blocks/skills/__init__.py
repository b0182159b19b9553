"""Skill files: what one says, and the folder they lie in."""
