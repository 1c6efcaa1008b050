from pathlib import Path

import pytest

from cdd_agent.sandbox.backends import CONFIGURATION
from tests.cdd_agent.sandbox.conftest import CONFINED, Ground

READABLE = """
import sys
for path in sys.argv[1:]:
    try:
        open(path, "rb").close()
    except OSError:
        continue
    print(path)
"""


@pytest.mark.parametrize("level", CONFINED)
def test_of_etc_that_alone_is_read_which_is_named(tmp_path: Path, level: str) -> None:
    files = sorted(str(path) for path in Path("/etc").iterdir() if path.is_file() and not path.is_symlink())
    told = Ground.lay(tmp_path, level=level).python(READABLE, *files).output.split()
    named = {*CONFIGURATION, "/etc/gitconfig"} if level == "landlock" else {*CONFIGURATION}
    assert told == [path for path in files if path in named]
    assert "/etc/passwd" in told


def test_no_passwords_and_no_keys_are_named() -> None:
    assert not {"/etc", "/etc/shadow", "/etc/gshadow", "/etc/ssl", "/etc/ssl/private", "/etc/ssh"} & set(CONFIGURATION)
