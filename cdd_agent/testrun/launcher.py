"""What starts pytest in the project's interpreter: as ``python -m pytest`` would, but with the pytest installed there.

``python -m`` puts the current folder before everything else, so that a file ``pytest.py`` of the project would be taken
for pytest. ``Suite`` runs a copy of this file; it knows nothing but pytest, and is Python 3.8. Processes that tests
spawn import it again, hence the guard at its end.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> int:
    """Run pytest with the arguments of this program, and only then with the current folder on the path."""
    import pytest

    class RunToTheEnd:
        """Undoes ``--stepwise``, which no option of the command line can."""

        @pytest.hookimpl(tryfirst=True)
        def pytest_configure(self, config: pytest.Config) -> None:
            """Come before pytest's own plugin looks at the options."""
            for name in ("stepwise", "stepwise_skip", "stepwise_reset"):
                if hasattr(config.option, name):
                    setattr(config.option, name, False)

    sys.path[0] = os.getcwd()
    sys.argv[0] = str(Path(pytest.__file__).with_name("__main__.py"))
    return int(pytest.main(sys.argv[1:], plugins=[RunToTheEnd()]))


if __name__ == "__main__":
    sys.exit(main())
