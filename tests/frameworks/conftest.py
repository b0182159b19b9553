"""Collect the tests of the frameworks that are installed here; a file that is named is collected.

`python -m tests.frameworks` installs all frameworks and names the tests of each.
"""

from __future__ import annotations

from tests.frameworks.environments import FRAMEWORKS, INSTALLED

collect_ignore = [f"test_{name}.py" for name in FRAMEWORKS.keys() - {*INSTALLED}]
