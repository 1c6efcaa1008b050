"""Names by which the usual runners of commit hooks are told what to run, relative to the work tree. Pure."""

from itertools import product

FOLDERS = (".git-hooks", ".githooks", ".husky", ".lefthook", ".lefthook-local")
"""All that lies in them, at any depth: hooks, and what hooks read."""

_LEFTHOOK = tuple(
    f"{stem}{local}.{kind}"
    for stem, local, kind in product(
        ("lefthook", ".lefthook", ".config/lefthook"), ("", "-local"), ("json", "jsonc", "toml", "yaml", "yml")
    )
)

FILES = (
    ".huskyrc",
    ".huskyrc.js",
    ".huskyrc.json",
    ".huskyrc.yaml",
    ".huskyrc.yml",
    ".local-overcommit.yml",
    ".overcommit.yml",
    ".pre-commit-config.yaml",
    "captainhook.json",
    "husky.config.js",
    "prek.toml",
    *_LEFTHOOK,
)
