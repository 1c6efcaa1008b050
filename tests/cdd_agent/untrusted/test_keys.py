import base64
import random
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.untrusted.keys import MASK, find_key_kind, mask


def drawn(length: int, letters: str = string.ascii_letters + string.digits) -> str:
    """The same word every time; made here, so that no file of the project holds a text shaped like a key."""
    return "".join(random.Random(length).choices(letters, k=length))


PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n"
    + "\n".join(drawn(64) for _ in range(3))
    + "\n-----END RSA PRIVATE KEY-----"
)

KEYS = {
    "Anthropic key": f"sk-ant-api03-{drawn(90)}",
    "OpenAI key": f"sk-proj-{drawn(60)}",
    "AWS key": f"AKIA{drawn(16, string.ascii_uppercase)}",
    "GitHub token": f"ghp_{drawn(36)}",
    "GitLab token": f"glpat-{drawn(20)}",
    "Slack token": f"xoxb-{drawn(12, string.digits)}-{drawn(24)}",
    "Google key": f"AIza{drawn(35)}",
    "Stripe key": f"sk_live_{drawn(24)}",
    "npm token": f"npm_{drawn(36)}",
    "PyPI token": f"pypi-AgEIcHlwaS5vcmc{drawn(60)}",
    "Hugging Face token": f"hf_{drawn(34)}",
    "Azure key": f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={drawn(86)}==",
    "token": f"eyJ{drawn(33)}.eyJ{drawn(60)}.{drawn(43)}",
    "password": f"postgres://app:{drawn(12)}@db.example.org:5432/x",
    "private key": PEM,
}


@pytest.mark.parametrize("around", ["{}", 'KEY = "{}"\n', "export TOKEN={};", "Bearer {}\r\nnext", "a_{}_"])
def test_every_kind_of_key_is_found_and_masked_wherever_it_stands(around: str) -> None:
    for kind, key in KEYS.items():
        stands_apart = around == "a_{}_" and kind in ("AWS key", "npm token", "token")
        text = ("a={} " if stands_apart else around).format(key)
        assert find_key_kind(text) == kind
        masked = mask(text)
        assert masked.count == 1, kind
        assert key not in masked.text, kind
        assert f"[masked: {kind}]" in masked.text
        assert masked.text.count("\n") == text.count("\n"), kind
        assert find_key_kind(masked.text) is None, kind


def test_the_secret_half_of_an_aws_key_is_known_by_what_it_is_called() -> None:
    secret = drawn(40)
    for line in (
        f"aws_secret_access_key = {secret}",
        f'"SecretAccessKey": "{secret}"',
        f"AWS_SECRET_ACCESS_KEY={secret}",
    ):
        masked = mask(line)
        assert masked.count == 1
        assert secret not in masked.text
        assert masked.text.startswith(line.partition(secret)[0])


@pytest.mark.parametrize("secret", [drawn(12), f"{drawn(5)}@{drawn(6)}", f"%40{drawn(8)}", f"{drawn(4)}:{drawn(5)}"])
def test_of_an_address_only_the_password_is_masked(secret: str) -> None:
    for text in (f"amqp+ssl://app:{secret}@db:5432/x?y=1", f'"redis://:{secret}@[::1]/0"'):
        assert mask(text).text == text.replace(secret, "[masked: password]")


def test_of_a_connection_only_the_key_is_masked() -> None:
    key = f"{drawn(86)}=="
    text = f"AccountName=x;AccountKey={key};EndpointSuffix=core.windows.net"
    assert mask(text).text == text.replace(key, "[masked: Azure key]")


def test_no_line_of_a_private_key_is_left_and_its_lines_keep_their_numbers() -> None:
    masked = mask(f"before\n{PEM}\nafter\n")
    lines = masked.text.split("\n")
    assert lines[:2] == ["before", "-----BEGIN RSA PRIVATE KEY-----"]
    assert lines[-2] == "after"
    assert len(lines) == len(f"before\n{PEM}\nafter\n".split("\n"))
    assert not [line for line in PEM.split("\n")[1:] if line and line in masked.text]


@pytest.mark.parametrize("text", [PEM.replace("\n", "\\n"), PEM[:200]])
def test_a_private_key_on_one_line_or_cut_off_is_masked_too(text: str) -> None:
    assert mask(text).count == 1
    assert drawn(64) not in mask(text).text


@pytest.mark.parametrize(
    "text",
    [
        "sk-ant-...",
        "sk-ant-api03-",
        "task-force",
        "sk-antelope-migration",
        "AKIAIOSFODNN7EXAMPLE",
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        'BEGIN = "-----BEGIN PRIVATE KEY-----"\nEND = "-----END PRIVATE KEY-----"\nx = 1\n',
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN CERTIFICATE-----\n" + base64.b64encode(b"x" * 200).decode(),
        "ghp_short",
        "0123456789abcdef0123456789abcdef01234567",
        "sk_test_" + "a" * 24,
        "an_xoxo_variable",
        "postgres://user:password@localhost/x",
        "postgres://{user}:{password}@{host}/x",
        "postgres://$USER:${PASSWORD}@db/x",
        "http://localhost:8080/a@b",
        "https://example.org/a:b@c",
        "git@github.com:owner/name.git",
        "eyJhbGciOiJIUzI1NiJ9",
        "AccountKey=...",
    ],
)
def test_what_only_looks_a_little_like_a_key_stays(text: str) -> None:
    assert find_key_kind(text) is None
    assert mask(text).text == text


def test_all_keys_of_a_text_are_counted() -> None:
    text = "\n".join(KEYS.values())
    masked = mask(text)
    assert masked.count == len(KEYS)
    assert len(MASK.findall(masked.text)) >= len(KEYS)


@given(st.text())
def test_masking_keeps_the_number_of_lines_and_is_done_once(text: str) -> None:
    masked = mask(text)
    assert masked.text.count("\n") == text.count("\n")
    assert mask(masked.text).count == 0


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN PRIVATE KEY-----\n" * 3000 + "sk-" * 50_000,
        "-----BEGIN PRIVATE KEY-----" + "A" * 200_000,
        "-----BEGIN PRIVATE KEY-----" + "A" * 31 + "!" + ("A" * 31 + "!") * 5_000,
        "-----BEGIN PRIVATE KEY-----" + "A: a" * 50_000,
        "AKIA" * 50_000,
        "aws_secret_access_key=" * 10_000,
        "-eyJaaaaaaaaa" * 20_000,
        "eyJaaaaaaaaa." * 20_000 + " ",
        "eyJ" + "a" * 200_000 + ".eyJ" + "a" * 200_000,
        "a://" * 50_000,
        "a://b:c" * 30_000,
        "a://b:" + "@" * 200_000,
        "AccountKey=" * 20_000 + "a" * 30,
    ],
)
def test_a_text_made_to_be_slow_is_looked_through_quickly(text: str) -> None:
    started = time.process_time()
    assert mask(text).text == text
    assert time.process_time() - started < 5


def test_a_text_changed_elsewhere_gets_its_keys_back() -> None:
    text = f"a = 1\n{PEM}\nb = '[masked: AWS key]'\nc = '{KEYS['AWS key']}'\n"
    masked = mask(text)
    assert masked.restore(masked.text) == text
    assert masked.restore(masked.text.replace("a = 1", "a = 2")) == text.replace("a = 1", "a = 2")
    assert masked.restore(masked.text.replace("[masked: AWS key]", "x", 1)) is None
    assert masked.restore(masked.text + "[masked: AWS key]") is None


@given(st.lists(st.sampled_from([*KEYS.values(), "[masked: AWS key]", "\n", "x", '"', "-----BEGIN PRIVATE KEY-----"])))
def test_masking_can_always_be_taken_back(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert mask(text).restore(mask(text).text) == text
