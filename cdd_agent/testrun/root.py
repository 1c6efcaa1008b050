"""Finds the folder of the project that a command works on."""

import os
from collections.abc import Mapping
from pathlib import Path

from cdd_agent.config.options import Options, read_path_variable
from cdd_agent.errors import UsageError


def find_root(options: Options, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the named folder, or else the nearest project, or else the top of the work tree.

    Outside a git work tree that is the current folder. Raises ``UsageError`` if the named folder does not exist.
    """
    named = options.project or read_path_variable(environment, "CDD_PROJECT_ROOT", "TDD_PROJECT_ROOT")
    if named is not None:
        if not named.is_dir():
            raise UsageError(f"The project's folder {named} does not exist.", hint="correct CDD_PROJECT_ROOT")
        return named.resolve()
    here = Path.cwd()
    top = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    if here == top:
        return top
    from cdd_agent.testrun.project import find_project  # slow to import and rarely needed

    return find_project(here, top=top)
