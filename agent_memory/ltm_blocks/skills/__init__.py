"""`SkillMemory`: procedures, as Markdown files in a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.skills.block import SkillMemory, Skills
    from agent_memory.ltm_blocks.skills.skill import BrokenSkill, Skill

__all__ = ["BrokenSkill", "Skill", "SkillMemory", "Skills"]

if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            ".block": (
                "SkillMemory",
                "Skills",
            ),
            ".skill": (
                "BrokenSkill",
                "Skill",
            ),
        },
    )
