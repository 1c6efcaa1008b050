"""The cost of finding, replacing and renaming a definition in a package of 203 files and 39,000 lines."""

import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.symbols.edit import insert_after, replace_body
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.project import Symbols
from cdd_agent.symbols.ty import TyServer
from tests.bench.bars import Bars

BAR_FIND_MS = 1.0
BAR_REPLACE_MS = 20.0
BAR_RENAME_MS = 1000.0
_FILES = 203
_USERS = 188
_FUNCTIONS = 19
_LOOP = "    for each in values:\n        if each > limit:\n            total += each\n"
_BODY = f"    total = 0\n{_LOOP}    return total\n\n\n"
_ROUNDS = 21
_UNSURE_S = 0.06
"""A file that was written less than 50 ms ago is read again at each question."""


def show(folder: Path, *, quick: bool) -> bool:
    """Print the figures and the bars; return whether all are kept."""
    print("\nsymbols: CPU ms, the median of several rounds")
    _write_package(folder)
    index, bars = Index(folder), Bars()
    first_ms = _measure(lambda: index.find("calculate_mean"), rounds=1)
    print(f"  the first question reads {len(index.list_paths())} files: {first_ms:.0f} ms")
    time.sleep(_UNSURE_S)
    find_ms = _measure(lambda: index.find("calculate_mean"))
    assert len(index.find("calculate_mean")) == 3
    bars.at_most("find a name, with the status of all files", find_ms, limit=BAR_FIND_MS)
    path = "pkg/p3/m50.py"
    content, symbol = index.read(path), index.find_one("function_7_50")
    lines = content.count(b"\n")
    replace_ms = _measure(lambda: replace_body(content, symbol, code="if values:\n    return 1\nreturn limit"))
    bars.at_most(f"replace a body in {lines} lines", replace_ms, limit=BAR_REPLACE_MS)
    insert_ms = _measure(lambda: insert_after(content, symbol, code="def added():\n    return 1"))
    bars.at_most(f"insert a function in {lines} lines", insert_ms, limit=BAR_REPLACE_MS)
    symbols = Symbols(index)
    _compare_rename(symbols, bars, title="by names")
    if find_spec("ty") is not None and not quick:
        with_ty = Symbols(index, servers=[TyServer(index, sandbox=PlainSandbox())])
        _compare_rename(with_ty, bars, title="by ty (its own CPU is not in it)")
        with_ty.close()
    return bars.are_kept


def _compare_rename(symbols: Symbols, bars: Bars, *, title: str) -> None:
    symbol = symbols.find_one("pkg.core.validate_input")
    plan = symbols.plan_rename(symbol, "check_input")
    assert len(plan.changes) == _USERS + 1, plan.answer
    assert not plan.remaining
    spent = _measure(lambda: symbols.plan_rename(symbol, "check_input"), rounds=3)
    wall = _measure(lambda: symbols.plan_rename(symbol, "check_input"), rounds=3, clock=time.perf_counter)
    print(f"  {plan.answer.engine}: {plan.count} places, {wall:.0f} ms of waiting")
    bars.at_most(f"plan a rename in {len(plan.changes)} files {title}", spent, limit=BAR_RENAME_MS)


def _measure(
    act: Callable[[], object], *, rounds: int = _ROUNDS, clock: Callable[[], float] = time.process_time
) -> float:
    """Return the median of the milliseconds of ``act``."""
    times = list[float]()
    for _ in range(rounds):
        start = clock()
        act()
        times.append((clock() - start) * 1000)
    return median(times)


def _write_package(folder: Path) -> None:
    files = {f"pkg/p{at}/__init__.py": "" for at in range(7)} | {"pkg/__init__.py": ""}
    files["pkg/core.py"] = f"def validate_input(values, limit=0):\n{_BODY}"
    for at in range(_FILES - len(files)):
        text = (
            '"""A module."""\n\nfrom pkg.core import validate_input\n\n\n' if at < _USERS else '"""A module."""\n\n\n'
        )
        text += f"def use_{at}(values, limit):\n    return validate_input(values) + limit\n\n\n" if at < _USERS else ""
        text += "".join(f"def function_{n}_{at}(values, limit):\n{_BODY}" for n in range(_FUNCTIONS))
        text += "class Table:\n" + "".join(f"    def column_{n}(self):\n        return {n}\n\n" for n in range(20))
        text += f"\ndef calculate_mean(values, limit):\n{_BODY}" if at % 64 == 1 and at < 180 else ""
        files[f"pkg/p{at % 7 if at != 50 else 3}/m{at}.py"] = text
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
