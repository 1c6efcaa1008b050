"""An interpreter for small projects: this one's pytest without its plugins, which take longer to load than to run."""

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

_NEEDED = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")


def lean_python(folder: Path, *plugins: str, python: str | Path = sys.executable) -> Path:
    """Make a virtual environment in ``folder`` with pytest, what it needs and the ``plugins``, and nothing else.

    For another release of ``python``, the plugins have to be pure Python, as pytest is.
    """
    if not folder.exists():
        made = folder.with_name(f"{folder.name}.{os.getpid()}")
        subprocess.run([python, "-m", "venv", "--without-pip", "--symlinks", made], check=True)
        site = next((made / "lib").glob("python*/site-packages"))
        for name in (*_NEEDED, *plugins):
            installed = distribution(name)
            tops = {path.parts[0] for path in installed.files or ()} - {"..", "__pycache__"}
            for top in tops:
                (site / top).symlink_to(Path(str(installed.locate_file(top))))
        made.rename(folder)
    return folder / "bin" / "python"
