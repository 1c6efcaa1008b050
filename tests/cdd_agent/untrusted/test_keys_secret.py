import base64
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from cdd_agent.untrusted.keys import HIDDEN, Secret, take_key

ROOT = Path(__file__).parents[3]
KEY = "sk-ant-canary-0123456789abcdef"


def test_the_key_is_told_to_who_asks_for_it_and_to_nobody_else() -> None:
    secret = Secret(f" {KEY}\n")
    assert secret.reveal() == KEY
    assert KEY not in f"{secret!r} {secret} {dir(secret)}"
    with pytest.raises(TypeError):
        vars(secret)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(secret)


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        f"Bearer {KEY},",
        KEY[:20],
        base64.b64encode(KEY.encode()).decode(),
        base64.urlsafe_b64encode(KEY.encode()).decode().rstrip("="),
    ],
)
def test_the_key_is_found_and_hidden_in_each_of_its_forms(form: str) -> None:
    secret = Secret(KEY)
    assert secret.is_in(f"a{form}b")
    hidden = secret.hide_in(f"a {form} b")
    assert HIDDEN in hidden
    assert not secret.is_in(hidden)


def test_a_key_too_short_to_be_one_is_not_looked_for_in_words() -> None:
    assert Secret("local").hide_in("a local server") == "a local server"
    assert Secret("").hide_in("text") == "text"


def test_it_is_taken_out_of_the_environment_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    taken = take_key()
    assert taken is not None
    assert taken.reveal() == KEY
    assert "ANTHROPIC_API_KEY" not in os.environ
    assert take_key() is None


_LOOK = """
import os, subprocess, sys
from cdd_agent.untrusted import keys
before = b"canary" in open("/proc/self/environ", "rb").read()
keys.protect_memory()
key = keys.take_key()
child = subprocess.run([sys.executable, "-c", "import os; print('canary' in str(os.environ))"], capture_output=True)
print(before, b"canary" in open("/proc/self/environ", "rb").read(), child.stdout.decode().strip(), key.reveal())
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="this system has no /proc")
def test_nothing_of_it_is_left_where_other_processes_can_look() -> None:
    environment = {"ANTHROPIC_API_KEY": KEY, "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", _LOOK], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "False", KEY]


_BECOME_NOBODY = """
import ctypes, os, sys
from cdd_agent.untrusted import keys
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
"""

_WAIT = f"""{_BECOME_NOBODY}
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as a program begins
if sys.argv[1] == "closed":
    keys.protect_memory()
print("ready", flush=True)
sys.stdin.read()
"""

_PEEK = f"""{_BECOME_NOBODY}
for name in ("environ", "mem"):
    try:
        open(f"/proc/{{sys.argv[1]}}/{{name}}", "rb").close()
        print("open", end=" ")
    except PermissionError:
        print("refused", end=" ")
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="this system has no /proc")
@pytest.mark.parametrize(("how", "found"), [("open", ["open", "open"]), ("closed", ["refused", "refused"])])
def test_the_memory_is_closed_to_other_processes_of_the_same_user(how: str, found: list[str]) -> None:
    python = [sys.executable, "-c"]
    with subprocess.Popen([*python, _WAIT, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == b"ready\n"
        looked = subprocess.run(
            [*python, _PEEK, str(waiting.pid)], cwd=ROOT, capture_output=True, text=True, check=True
        )
        waiting.communicate(b"")
    assert looked.stdout.split() == found
