import pytest

from cdd_agent.untrusted.paths import is_secret


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
        *(".envs/.production/.postgres", ".env.d/prod", ".env/prod", "deploy/.ENVS/web"),
        *("prod.tfvars", "terraform.auto.tfvars", "env.production", ".flaskenv", ".dev.vars", ".dev.vars.live"),
        *(".cargo/credentials", ".cargo/credentials.toml", "credentials", "credentials.yml", "credentials.toml"),
        *(
            "server.key~",
            "id_rsa.bak",
            ".env.example/.env/id_rsa",
            "id_rsa.old",
            "server.pem.orig",
            ".netrc.save",
            "prod.env.bak~",
            ".pgpass~",
        ),
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
        *(".envs/example/.postgres", ".envs/README.md", "example.tfvars", "terraform.tfvars.example"),
        *(".env.example~", ".dev.vars.example", "env.py", "credentials/store.py", "keys.py.bak", "~", ".bak"),
    ],
)
def test_other_files_are_not(path: str) -> None:
    assert not is_secret(path)
