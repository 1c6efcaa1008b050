"""Files whose names say that they hold secrets: they are not read out to a model. Pure."""

import re
from fnmatch import fnmatchcase

from cdd_agent.guarded.spelling import folded

_SAMPLE = re.compile(r"(?:^|[._-])(?:example|sample|template|dist)(?:[._-]|$)")
"""In the name of an environment file that only shows what could be set."""

_COPY = re.compile(r"(?:~|\.(?:bak|old|orig|save))+$")
"""At the end of the name of a copy that an editor or a person made."""

_FILES = (
    "*.jks",
    "*.kdbx",
    "*.key",
    "*.keystore",
    "*.p12",
    "*.pem",
    "*.pfx",
    "*.ppk",
    "*.tfstate",
    ".boto",
    ".dev.vars",
    ".dockercfg",
    ".flaskenv",
    ".git-credentials",
    ".htpasswd",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".s3cfg",
    ".vault-token",
    ".yarnrc.yml",
    "_netrc",
    "client_secret*.json",
    "credentials",
    "credentials.json",
    "credentials.toml",
    "credentials.yaml",
    "credentials.yml",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "id_rsa",
    "secrets.json",
    "secrets.toml",
    "secrets.yaml",
    "secrets.yml",
    "service-account*.json",
    "service_account*.json",
)
_STAGES = ("env.dev", "env.development", "env.local", "env.prod", "env.production", "env.staging", "env.test")
_SHOWABLE = ("*.tfvars", "*.tfvars.json", ".dev.vars.*", *_STAGES)
"""Files of settings with secrets among them, unless the name says that it is an example."""

_PLACES = (".aws/config", ".aws/credentials", ".docker/config.json", ".kube/config")
_ENVIRONMENTS = frozenset({".env", ".env.d", ".envs"})
"""Folders of environment files; one of Python's may be called so too."""
_SOURCES = (".md", ".py", ".pyi")
_FOLDERS = frozenset({".azure", ".gnupg", ".ssh"})


def is_secret(path: str) -> bool:
    """Whether a relative path names a file of secrets, in any spelling.

    ``.env`` and its kin count, except those called example, sample, template or dist; so do copies, ``id_rsa.bak``.
    """
    names = [folded(part) for part in path.split("/")]
    name = names[-1] = _COPY.sub("", names[-1]) or names[-1]
    if name.startswith(".env") or name.endswith(".env") or any(fnmatchcase(name, pattern) for pattern in _SHOWABLE):
        return _SAMPLE.search(name) is None
    is_of_environment = not _ENVIRONMENTS.isdisjoint(names[:-1]) and not name.endswith(_SOURCES)
    if is_of_environment and not any(map(_SAMPLE.search, names)):
        return True
    if not _FOLDERS.isdisjoint(names[:-1]) or "/".join(names[-2:]) in _PLACES:
        return True
    return any(fnmatchcase(name, pattern) for pattern in _FILES)
