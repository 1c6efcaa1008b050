"""Where the Messages API is and how it is reached: named by the user's environment alone. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from cdd_agent.errors import UsageError

API_URL = "https://api.anthropic.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server that speaks the Messages API."""

    url: str = API_URL
    proxy: str | None = field(default=None, repr=False)
    """It may hold a password."""
    certificates: str | None = None
    """A file of authorities to trust instead of the usual ones, such as a company's."""

    @property
    def is_in_the_clear(self) -> bool:
        """Whether others on the way could read what is sent, the key included."""
        return urlsplit(self.url).scheme == "http" and not is_loopback(self.url)

    @classmethod
    def named_by(cls, environment: Mapping[str, str]) -> "Endpoint":
        """What ``ANTHROPIC_BASE_URL``, ``HTTPS_PROXY``, ``NO_PROXY`` and ``SSL_CERT_FILE`` say.

        Raises ``UsageError`` for an address that is none.
        """
        url = environment.get("ANTHROPIC_BASE_URL") or API_URL
        try:
            is_usable = urlsplit(url).scheme in ("http", "https") and bool(urlsplit(url).hostname)
            is_usable = is_usable and urlsplit(url).port != 0
        except ValueError:
            is_usable = False
        if not is_usable:
            raise UsageError(
                f"ANTHROPIC_BASE_URL is not an address of a server: {shown_url(url)}.",
                hint=f"write it like {API_URL}, or: unset ANTHROPIC_BASE_URL",
            )
        return cls(url=url, proxy=_proxy(url, environment), certificates=environment.get("SSL_CERT_FILE") or None)


def is_loopback(url: str) -> bool:
    """Whether ``url`` names this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d+){3}", host) is not None


def shown_url(url: str) -> str:
    """``url`` without a user name, a password or a query."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return url.rpartition("@")[2]
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}".rstrip("/")


def _proxy(url: str, environment: Mapping[str, str]) -> str | None:
    """The proxy for ``url``; none for this machine's own servers, and for those that ``NO_PROXY`` names."""
    scheme = urlsplit(url).scheme
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
    proxy = next((environment[name] for name in names if environment.get(name)), None)
    if proxy is None or is_loopback(url):
        return None
    direct = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    return None if _is_named(url, (name.strip() for name in direct.split(","))) else proxy


def _is_named(url: str, names: Iterable[str]) -> bool:
    """Whether one of ``names`` (a host, a domain, either with a port, or ``*``) covers ``url``."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}[parts.scheme]
    for name in filter(None, names):
        domain, colon, own_port = name.lower().rpartition(":")
        if not (colon and own_port.isdigit()):
            domain, own_port = name.lower(), ""
        domain = domain.removeprefix("*.").lstrip(".")
        covers = domain in ("*", host) or host.endswith(f".{domain}")
        if covers and own_port in ("", str(port)):
            return True
    return False
