"""`SkillMemory`: procedures, as Markdown files in a folder."""

from agent_memory.ltm_blocks.skills.block import SkillMemory, Skills
from agent_memory.ltm_blocks.skills.files import BrokenSkill, Skill

__all__ = ["BrokenSkill", "Skill", "SkillMemory", "Skills"]
