"""Files whose names say that they hold secrets: they are not read out to a model. Pure."""

import re
from fnmatch import fnmatchcase

from cdd_agent.guarded.spelling import folded

_SAMPLE = re.compile(r"(?:^|[._-])(?:example|sample|template|dist)(?:[._-]|$)")
"""In the name of an environment file that only shows what could be set."""

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
    ".dockercfg",
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
    "credentials.json",
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
_PLACES = (".aws/config", ".aws/credentials", ".docker/config.json", ".kube/config")
_FOLDERS = frozenset({".azure", ".gnupg", ".ssh"})


def is_secret(path: str) -> bool:
    """Whether a relative path names a file of secrets, in any spelling.

    ``.env`` and its kin count, except those called example, sample, template or dist.
    """
    names = [folded(part) for part in path.split("/")]
    name = names[-1]
    if name.startswith(".env") or name.endswith(".env"):
        return _SAMPLE.search(name) is None
    if not _FOLDERS.isdisjoint(names[:-1]) or "/".join(names[-2:]) in _PLACES:
        return True
    return any(fnmatchcase(name, pattern) for pattern in _FILES)
