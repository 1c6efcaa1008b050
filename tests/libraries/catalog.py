"""Libraries whose source distributions hold their own tests, and what those tests need."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Library:
    """One library, pinned."""

    name: str
    version: str
    needs: tuple[str, ...] = ()
    """Requirements of its tests."""
    before: str = ""
    """The release before it."""
    package: str = ""
    """The import name, if it is another one."""

    @property
    def import_name(self) -> str:
        return self.package or self.name

    @property
    def pin(self) -> str:
        return f"{self.name}=={self.version}"


LIBRARIES = (
    Library("asgiref", "3.13.0", ("pytest-asyncio==1.5.0",), before="3.12.1"),  # asyncio, threads, xfail
    Library(
        "attrs", "26.1.0", ("hypothesis", "cloudpickle"), before="25.4.0", package="attr"
    ),  # property tests, classes, xfail
    Library("boltons", "26.2.0", before="26.1.0"),  # doctests of every module
    Library("cachetools", "8.0.1", before="8.0.0"),  # unittest with inherited tests and subtests
    Library("click", "8.5.1", before="8.5.0"),  # parametrized, tests that are deselected by default
    Library("idna", "3.20", before="3.19"),  # unittest, thousands of subtests
    Library("jinja2", "3.1.6", ("trio",), before="3.1.5"),  # two event loops in parametrized tests
    Library("parso", "0.8.7", before="0.8.6"),  # node ids with source code in them, doctests
    Library(
        "python-dateutil",
        "4.0.0",
        ("freezegun", "hypothesis", "pytest-cov", "attrs"),
        before="3.0.0",
        package="dateutil",
    ),  # xfail, frozen time
    Library("sqlparse", "0.6.1", before="0.6.0"),  # xfail, xpass
)

REBUILT = (
    *LIBRARIES,
    Library("deprecated", "1.3.1", ("wrapt",)),  # decorators, classes as decorators
    Library("humanize", "4.17.0", ("freezegun",)),  # data files, module-level code that calls functions
    Library("pathspec", "0.12.1"),  # module-level code that registers classes elsewhere, tabs
    Library("pyjwt", "2.15.1", ("cryptography",), package="jwt"),  # optional imports under try
    Library("tinydb", "4.9.0"),  # a base class that a function makes
    Library("voluptuous", "0.16.0"),  # definitions that need each other, tests inside of the package
)
"""Those that are rebuilt from their planning graphs."""
