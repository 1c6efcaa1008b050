"""A process that does nothing but save one file again and again, each time whole and with a number of its own."""

import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.storage import is_leftover, sweep

_SAVER = """
import sys
from pathlib import Path
from cdd_agent.storage import write_atomic
path, size, first, last = Path(sys.argv[1]), *map(int, sys.argv[2:])
for number in range(first, last):
    try:
        write_atomic(path, (str(number) + "\\n").encode().ljust(size, b"."))
    except OSError as error:
        sys.exit(f"{error.errno} {error.strerror}: {error.filename}")
    print(number, flush=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saver:
    """Saves ``project/state`` with the numbers from ``first`` up to ``last``."""

    folder: Path
    size_bytes: int
    first: int = 1
    last: int = 1_000_000

    @property
    def project(self) -> Path:
        """Where the file is."""
        return self.folder / "project"

    @property
    def state(self) -> Path:
        """The file."""
        return self.project / "state"

    def start(self, *prefix: str) -> "subprocess.Popen[bytes]":
        """The process; each number is printed once it is saved."""
        numbers = map(str, (self.size_bytes, self.first, self.last))
        return subprocess.Popen(
            [*prefix, sys.executable, "-c", _SAVER, str(self.state), *numbers],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def number(self) -> int:
        """What was saved last; raises ``ValueError`` if the file is torn."""
        data = self.state.read_bytes()
        if len(data) != self.size_bytes or data.strip(b".0123456789\n"):
            raise ValueError(f"{self.state.name} is torn: {len(data)} of {self.size_bytes} bytes")
        return int(data.partition(b"\n")[0])

    def leftovers(self) -> list[str]:
        """Temporary files beside it."""
        return [path.name for path in self.project.iterdir() if is_leftover(path.name)]


def killed_saves(folder: Path, *, count: int, size_bytes: int, seed: int) -> list[str]:
    """What went wrong when a saving process was killed ``count`` times: torn files, lost saves, what is not swept."""
    chance, wrong, least = random.Random(seed), list[str](), 0
    folder.mkdir()
    for attempt in range(count):
        saver = Saver(folder=folder, size_bytes=size_bytes, first=least + 1)
        with saver.start() as process:
            assert process.stdout is not None
            seen = process.stdout.readline()
            try:
                process.wait(timeout=chance.uniform(0, 0.02))
            except subprocess.TimeoutExpired:
                process.kill()
            acknowledged = (seen + process.stdout.read()).split()
        try:
            least = saver.number()
            if least < int(acknowledged[-1]):
                wrong.append(f"attempt {attempt}: {acknowledged[-1].decode()} was saved, {least} is there")
        except ValueError as error:
            wrong.append(f"attempt {attempt}: {error}")
        sweep([saver.project])
        wrong += [f"attempt {attempt}: {name} is left" for name in saver.leftovers()]
    return wrong
