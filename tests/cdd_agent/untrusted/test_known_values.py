import base64
from urllib.parse import quote

import pytest

from cdd_agent.untrusted.known_values import MASK, CopiedValue, KnownValues, read_text

VALUE = "Xk9vQ2mZ7Lp4Rt8s"
ENCODED = base64.b64encode(f"ada:{VALUE}".encode()).decode()


def known(content: str | bytes = f"TOKEN={VALUE}\n", path: str = ".env") -> KnownValues:
    values = KnownValues()
    values.add(path, content.encode() if isinstance(content, str) else content, names=("user_service_v1_pb2",))
    return values


def lines(text: str, values: KnownValues | None = None) -> list[tuple[int, bool]]:
    return [(each.line, each.is_long) for each in (values or known()).find(text)]


FILES: dict[str, str | bytes] = {
    ".env": f"TOKEN={VALUE}\n",
    "quoted.env": f"export TOKEN='{VALUE}' # of the shop\n",
    "auth.json": f'{{"accounts": [{{"name": "ada", "secret": "{VALUE}"}}]}}',
    "kubeconfig": f"users:\n- name: ada\n  user:\n    token: {VALUE}\n",
    "settings.toml": f'[shop]\nkey = "{VALUE}"\n',
    ".netrc": f"machine example.org login ada password {VALUE}\n",
    ".pgpass": f"db:5432:shop:ada:{VALUE}\n",
    "settings.xml": f"<server><password>{VALUE}</password></server>",
    "local.properties": f"storePassword={VALUE}\r\n",
    "hosts": f"https://ada:{VALUE}@example.org/\n",
    "url": f"HOOK=https://example.org/hooks/{VALUE}?wait=1\n",
    ".vault_pass": VALUE,
    "local_settings.py": f"TOKEN = '{VALUE}'\n",
    "config.js": f"module.exports = {{token: `{VALUE}`}}\n",
    "wallet.dat": b"\0\1\2" + VALUE.encode() + b"\xff\0",
    "windows.txt": f"token: {VALUE}".encode("utf-16"),
    "rows.csv": f"1,ada,{VALUE},2\n",
}


def test_a_value_is_found_whatever_the_format_of_its_file() -> None:
    found = {path: known(content, path).find(f"\nx = '{VALUE}'\n") for path, content in FILES.items()}
    assert found == {path: (CopiedValue(line=2, source=path, is_long=True),) for path in FILES}


SPELLINGS = {
    "plain": f"key = '{VALUE}'",
    "inside a longer word": f"key = 'ab{VALUE}cd'",
    "in the other case": f"key = '{VALUE.swapcase()}'",
    "backwards": f"key = '{VALUE[::-1]}'[::-1]",
    "in parts": f"key = '{VALUE[:5]}' + '{VALUE[5:]}'",
    "in parts that follow each other": f"key = ('{VALUE[:5]}'  # one\n  f'{VALUE[5:9]}'\n\n  rb'{VALUE[9:]}')",
    "in parts of another language": f'key = "{VALUE[:5]}" . \\\n  "{VALUE[5:]}"',
    "letter by letter": f"key = ''.join({list(VALUE)!r})",
    "with dashes": "-".join(VALUE),
    "over lines": f"{VALUE[:5]}\n{VALUE[5:]}",
    "escaped": "".join(f"\\x{ord(letter):02x}" for letter in VALUE),
    "escaped as unicode": "".join(f"\\u{ord(letter):04X}" for letter in VALUE),
    "escaped in octal": "".join(f"\\{ord(letter):03o}" for letter in VALUE),
    "in a markup": "".join(f"&#{ord(letter)};" for letter in VALUE),
    "in percents": "".join(f"%{ord(letter):02X}" for letter in VALUE),
    "in base64": f"key = '{ENCODED}'",
    "in base64 for addresses": base64.urlsafe_b64encode(VALUE.encode()).decode().rstrip("="),
    "in base64, in parts": f"key = '{ENCODED[:9]}'\\\n  '{ENCODED[9:]}'",
    "in base64 behind other letters": f"key = 'x{ENCODED}'",
    "in hexadecimal": VALUE.encode().hex(),
    "in hexadecimal with colons": VALUE.encode().hex(":"),
    "as numbers": str(list(VALUE.encode())),
    "as hexadecimal numbers": ", ".join(map(hex, VALUE.encode())),
    "as numbers in lines": "".join(f"{number},  # a letter\n" for number in VALUE.encode()),
    "as quoted octal numbers": str(list(map(oct, VALUE.encode()))),
    "as octal numbers without a mark": " ".join(f"{number:o}" for number in VALUE.encode()),
    "as binary numbers": " ".join(map(bin, VALUE.encode())),
    "without its last letter": f"key = '{VALUE[:-1]}'",
    "without its first letters": f"key = '{VALUE[2:]}'",
}


def test_a_value_is_found_however_it_is_spelled() -> None:
    found = {name: lines(f"first\n{text}\n") for name, text in SPELLINGS.items()}
    assert found == {name: [(2, True)] for name in SPELLINGS}


def test_no_other_text_is_taken_for_a_value() -> None:
    values = known(
        "API=http://localhost:8080/v1\nDAY=2026-11-27T10:00:00Z\nVERSION=1.2.3.dev4+gabc1234\nDEBUG=true\n"
        "PATHS=/usr/lib/python3.11/site-packages:docs/chapter.md\nMODULE=user_service_v1_pb2\nPORT=8080\n"
    )
    text = (
        "import user_service_v1_pb2\nurl = 'http://localhost:8080/v1'\nday = '2026-11-27T10:00:00Z'\n"
        "'/usr/lib/python3.11/site-packages', 'docs/chapter.md', '1.2.3.dev4+gabc1234', True, 8080\n"
    )
    assert values.find(text) == ()
    assert known().find("TOKEN = environ['TOKEN']") == ()


def test_a_value_may_begin_like_a_date_or_a_version() -> None:
    for value in ("2024-01-02secretXYZ9", "1.2.3-hunterpassword"):
        assert lines(f"x = '{value}'", known(f"password={value}\n")) == [(1, True)]


def test_a_list_of_names_and_a_word_like_most_of_a_name_hold_no_value() -> None:
    values = known(
        "README.md\nuser_service_v1_pb2\nuser_service_v1_pb2.user_service_v1_pb2\n", "app.egg-info/SOURCES.txt"
    )
    assert values.find("see user_service_v1_pb2") == ()
    assert known("field: customer_id_v2\n", "a.yml").find("customer_id_value = 1") == ()


def test_of_a_table_only_what_looks_made_by_chance_closes_the_gate() -> None:
    values = known(f"sku-0001-abcd,3,{VALUE}\n", "orders.csv")
    assert lines("assert row == 'sku-0001-abcd'", values) == [(1, False)]
    assert lines(VALUE, values) == [(1, True)]


def test_names_of_code_that_git_ignores_may_be_used() -> None:
    code = f"class UserServiceV1Stub:\n    '''{'x' * 20}1'''\n    token = '{VALUE}'\n"
    for path, text in (("generated.py", code), ("generated.ts", f"export class UserServiceV1Stub {{ t = '{VALUE}' }}")):
        values = known(text, path)
        assert values.find("stub = UserServiceV1Stub()") == ()
        assert lines(f"'{VALUE}'", values) == [(1, True)]


@pytest.mark.parametrize("short", ["hunter2", "supersecretpassword"])
def test_what_may_be_a_word_is_only_reported(short: str) -> None:
    assert lines(f"a\nb = '{short}'\n", known(f"PASSWORD={short}")) == [(2, False)]
    assert lines(f"a{short}b", known(f"PASSWORD={short}")) == [], "only as a whole word"


def test_a_key_needs_no_digit_and_one_line_of_a_private_key_is_enough() -> None:
    row = "MIIEpAIBAAKCAQEAlongenoughtobeakeyXXXXXXXXXXXXXXXX"
    pem = f"-----BEGIN RSA PRIVATE KEY-----\n{row}\n{row.swapcase()}X\n-----END RSA PRIVATE KEY-----\n"
    assert lines(f"x\n{row}", known(pem, "id_rsa")) == [(2, True)]
    assert lines("-----END RSA PRIVATE KEY-----", known(pem, "id_rsa")) == []
    assert lines("abcdefghijklmno", known("postgres://ada:abcdefghijklmno@db/shop")) == [(1, True)]


def test_a_value_of_signs_must_be_there_as_it_is() -> None:
    value = "a1!?%&-!?%&-!?"
    assert lines(f"x = '{value}'", known(f"PASSWORD='{value}'")) == [(1, True)]
    assert lines("a1 ! ? a1", known(f"PASSWORD='{value}'")) == []


def test_a_value_that_a_tracked_file_holds_is_none() -> None:
    asked: list[str] = []

    def is_public(text: str) -> bool:
        asked.append(text)
        return text == VALUE

    values = KnownValues(is_public=is_public)
    values.add(".env", f"TOKEN={VALUE}\nOTHER=Qw7Ab3x9{VALUE[::-1]}\n".encode())
    assert values.find("nothing") == ()
    assert asked == [], "git is asked only about what was found"
    assert values.find(VALUE) == values.find(f"{VALUE} {VALUE}") == ()
    assert asked == [VALUE]


def test_values_are_masked_in_texts() -> None:
    values = known(f"TOKEN={VALUE}\nPIN='a1!?%&-!?%&-!?'\n")
    text = f"It uses {VALUE} and a1!?%&-!?%&-!?.\nplain\nauthorization: {ENCODED}\n{quote(VALUE)}"
    assert values.hide_in(text) == f"It uses {MASK} and {MASK}.\nplain\n{MASK}\n{MASK}"
    assert known().hide_in("nothing of it") == "nothing of it"


def test_neither_a_value_nor_its_spelling_is_in_the_words_of_an_object() -> None:
    assert VALUE.lower() not in repr(known()).lower()


def test_a_large_text_is_read_in_a_moment() -> None:
    text = "\n".join(f"def function_{number}(x): return x + {number}" for number in range(3000))
    assert known().find(text) == ()
    assert read_text(b"\xff\xfea\0") == "a"
