"""``python -m tests.fuzz NAME --seed N [--count N | --index N]``: try one reader, or one input with its traceback."""

import argparse
import importlib
import sys

from tests.fuzz.trial import Target


def main(arguments: list[str]) -> int:
    """Print the figures, or the input and what becomes of it."""
    options = argparse.ArgumentParser(prog="python -m tests.fuzz")
    options.add_argument("name", help="a module of tests.fuzz.parsers")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--count", type=int, default=1000)
    options.add_argument("--index", type=int)
    chosen = options.parse_args(arguments)
    target: Target[object] = importlib.import_module(f"tests.fuzz.parsers.{chosen.name}").TARGET
    if chosen.index is None:
        figures = target.run(chosen.count, chosen.seed)
        print(figures)
        return int(figures.bad > 0)
    given = target.input(chosen.seed, chosen.index)
    print(repr(given))
    target.read(given)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
