import pytest

from cdd_agent.guarded.secret_files import is_secret


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        ".ENV",
        "deploy/.env.production",
        ".env.local",
        "prod.env",
        ".envrc",
        ".netrc",
        ".npmrc",
        ".pypirc",
        "id_rsa",
        "keys/id_ed25519",
        "certs/server.pem",
        "server.KEY",
        ".aws/credentials",
        "home/.ssh/config",
        ".docker/config.json",
        ".streamlit/secrets.toml",
        "service-account-prod.json",
        ".e\u200bnv",
        "infra/terraform.tfstate",
    ],
)
def test_files_of_secrets_are_known_by_their_names(path: str) -> None:
    assert is_secret(path)


@pytest.mark.parametrize(
    "path",
    [
        ".env.example",
        ".env.sample",
        ".env.template",
        "example.env",
        ".env.local.example",
        "environment.py",
        "src/env.py",
        "id_rsa.pub",
        "secrets.py",
        "docker/config.json",
        "config.json",
        "keys.py",
        "credentials.py",
        ".env/lib/a.py",
    ],
)
def test_other_files_are_not(path: str) -> None:
    assert not is_secret(path)
