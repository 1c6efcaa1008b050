import pytest

from cdd_agent.errors import UsageError
from cdd_agent.model.api.endpoint import API_URL, Endpoint, is_loopback, shown_url

PROXY = "http://ann:secret@proxy:3128"


def named(**environment: str) -> Endpoint:
    return Endpoint.named_by(environment)


def test_without_variables_it_is_the_api_itself() -> None:
    assert named() == Endpoint(url=API_URL, proxy=None, certificates=None)


def test_the_address_and_the_authorities_are_the_environment_s() -> None:
    endpoint = named(ANTHROPIC_BASE_URL="http://models.lan:8080", SSL_CERT_FILE="/etc/ssl/company.pem")
    assert (endpoint.url, endpoint.certificates) == ("http://models.lan:8080", "/etc/ssl/company.pem")


@pytest.mark.parametrize(
    "url", ["models.lan", "ftp://models.lan", "http://", "http://host:bad", "http://[::1", "file:///x"]
)
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(UsageError, match="ANTHROPIC_BASE_URL is not an address") as caught:
        named(ANTHROPIC_BASE_URL=url.replace("//", "//ann:secret@"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
def test_a_proxy_is_the_user_s_and_its_password_is_not_shown(name: str) -> None:
    endpoint = named(**{name: PROXY})
    assert endpoint.proxy == PROXY
    assert "secret" not in repr(endpoint)


def test_a_proxy_for_plain_http_is_none_for_https() -> None:
    assert named(HTTP_PROXY=PROXY).proxy is None
    assert named(HTTP_PROXY=PROXY, ANTHROPIC_BASE_URL="http://models.lan").proxy == PROXY


@pytest.mark.parametrize("url", ["http://localhost:1", "http://[::1]:1", "http://127.0.0.9"])
def test_a_server_of_this_machine_is_asked_past_any_proxy(url: str) -> None:
    assert is_loopback(url)
    assert named(ALL_PROXY=PROXY, HTTP_PROXY=PROXY, ANTHROPIC_BASE_URL=url).proxy is None


def test_a_name_that_begins_like_this_machine_is_not_it() -> None:
    assert not is_loopback("https://127.org")


@pytest.mark.parametrize(
    ("direct", "is_direct"),
    [
        ("*", True),
        ("anthropic.com", True),
        (".anthropic.com", True),
        ("*.anthropic.com", True),
        ("localhost, api.anthropic.com", True),
        ("api.anthropic.com:443", True),
        ("api.anthropic.com:8443", False),
        ("pi.anthropic.com", False),
        ("api.anthropic.com.evil.org", False),
        (" , ", False),
    ],
)
def test_no_proxy_names_the_servers_that_are_asked_directly(direct: str, is_direct: bool) -> None:
    assert (named(HTTPS_PROXY=PROXY, NO_PROXY=direct).proxy is None) is is_direct


def test_an_address_is_shown_without_its_password() -> None:
    assert shown_url("https://ann:secret@host:8080/api/?key=1") == "https://host:8080/api"


def test_an_address_that_is_none_is_shown_without_its_password_too() -> None:
    assert shown_url("http://ann:secret@host:bad") == "host:bad"


@pytest.mark.parametrize(
    ("url", "is_clear"), [("http://models.lan", True), ("https://models.lan", False), ("http://127.0.0.1:1", False)]
)
def test_what_is_sent_over_plain_http_can_be_read_on_the_way(url: str, is_clear: bool) -> None:
    assert Endpoint(url=url).is_in_the_clear is is_clear
