"""Run by `python -m ledger`."""

import sys

from ledger.cli import main

sys.exit(main(sys.argv[1:]))
