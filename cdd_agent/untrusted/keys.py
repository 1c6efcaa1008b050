"""Keys: find texts shaped like one and mask them, and keep the API key out of everything that is shown or saved.

Only distinctive shapes count: a mask in the wrong place hides text that somebody needs.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """A text with its keys masked."""

    text: str
    """The text with ``[masked: KIND]`` for each line of a key; its number of lines is unchanged."""
    count: int
    originals: tuple[str, ...]
    """The original text of each match of ``MASK``, in order."""

    def restore(self, text: str) -> str | None:
        """Put the keys back into an edited version of this text; return None if the edit changed a mask."""
        originals = iter(self.originals)
        if len(MASK.findall(text)) != len(self.originals):
            return None
        return MASK.sub(lambda _: next(originals), text)


MASK = re.compile(r"\[masked: [a-zA-Z ]+\]")
"""The replacement for a key, or for one line of it."""


class _Shape:
    """The shape of a key. The group ``key`` of the pattern, if present, is the secret part."""

    def __init__(self, kind: str, pattern: str, *marks: str) -> None:
        self.kind = kind
        self._pattern = pattern
        # Every match contains one of these, so the slower pattern is tried only on texts that do.
        self.marks = marks

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        # Not compiled at the start: every command takes the key, few look for others.
        return re.compile(self._pattern)


_START, _END = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"
_INSIDE = r"(?:(?!-----)[\s\S])"
_BREAK = r"(?:\\[nr]|\s)+"
_NO_PASSWORD = r"(?i:(?:pass|passwd|password|pw|pwd|secret|changeme|x+|\*+|\.{3}|\d{1,5})@|\$\w|\$?\{|%[s(]|\[masked)"
"""Placeholders for a password: its name, a variable, or a number such as a port."""

_SHAPES = (
    _Shape("Anthropic key", rf"{_START}sk-ant-[\w-]{{8,}}", "sk-ant-"),
    _Shape("OpenAI key", rf"{_START}sk-(?:proj|svcacct|admin)-[\w-]{{20,}}", "sk-proj-", "sk-svcacct-", "sk-admin-"),
    _Shape("OpenAI key", rf"{_START}sk-[A-Za-z0-9]{{48}}{_END}", "sk-"),
    _Shape("AWS key", rf"{_START}(?:AKIA|ASIA)(?![0-9A-Z]*EXAMPLE)[0-9A-Z]{{16}}{_END}", "AKIA", "ASIA"),
    _Shape(
        "AWS key",
        r"(?i:aws_?secret_?access_?key|secretaccesskey)[\"']?\s{0,4}[=:]\s{0,4}[\"']?"
        r"(?P<key>(?![A-Za-z0-9/+]*EXAMPLE)[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
        *("ccess_key", "CCESS_KEY", "ccessKey", "ccesskey"),
    ),
    _Shape("GitHub token", rf"{_START}gh[pousr]_[A-Za-z0-9]{{36,}}", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    _Shape("GitHub token", rf"{_START}github_pat_\w{{22,}}", "github_pat_"),
    _Shape("GitLab token", rf"{_START}gl(?:pat|ptt|dt|rt)-[\w-]{{20,}}", "glpat-", "glptt-", "gldt-", "glrt-"),
    _Shape("Slack token", rf"{_START}xox[abeoprs]-[0-9A-Za-z][0-9A-Za-z-]{{9,}}", "xox"),
    _Shape("Slack token", rf"{_START}xapp-\d-[0-9A-Z]+-\d+-[0-9a-f]{{20,}}", "xapp-"),
    _Shape("Slack hook", r"https://hooks\.slack\.com/services/(?P<key>T\w+/B\w+/\w{16,})", "hooks.slack.com"),
    _Shape("Google key", rf"{_START}AIza[\w-]{{35}}{_END}", "AIza"),
    _Shape("Google secret", rf"{_START}GOCSPX-[\w-]{{28}}{_END}", "GOCSPX-"),
    _Shape("Google token", rf"{_START}ya29\.[\w-]{{30,}}", "ya29."),
    _Shape("Stripe key", rf"{_START}[rs]k_live_[A-Za-z0-9]{{16,}}", "k_live_"),
    _Shape("SendGrid key", rf"{_START}SG\.[\w-]{{22}}\.[\w-]{{43}}", "SG."),
    _Shape("npm token", rf"{_START}npm_[A-Za-z0-9]{{36}}{_END}", "npm_"),
    _Shape("PyPI token", rf"{_START}pypi-AgE[\w-]{{50,}}", "pypi-AgE"),
    _Shape("Hugging Face token", rf"{_START}hf_[A-Za-z0-9]{{34}}{_END}", "hf_"),
    _Shape("DigitalOcean token", rf"{_START}do[opr]_v1_[0-9a-f]{{64}}", "_v1_"),
    _Shape(
        "Azure key", r"(?<![A-Za-z0-9])(?i:AccountKey)=(?P<key>[A-Za-z0-9+/]{40,}={0,2})", "AccountKey=", "accountkey="
    ),
    _Shape("token", r"(?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{16,}", "eyJ"),
    _Shape(
        "password",
        rf"(?<=[A-Za-z0-9]://)[^\s/:@\"'<>]{{0,100}}:(?!{_NO_PASSWORD})(?P<key>[^\s/\"'<>]{{1,256}})@(?=[\w.\[-])",
        "://",
    ),
    _Shape(
        "private key",
        r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?P<key>"
        rf"(?={_INSIDE}{{0,20000}}?[A-Za-z0-9+/]{{32}}){_INSIDE}{{40,20000}}-----END [A-Z0-9 ]{{0,40}}-----"
        rf"|(?:{_BREAK}[A-Z][A-Za-z-]+: [\w,-]+){{0,3}}{_BREAK}[A-Za-z0-9+/=]{{32,}}(?:{_BREAK}[A-Za-z0-9+/=]{{4,}})*)",
        "PRIVATE KEY",
    ),
)

_MARKS = tuple((mark, shape) for shape in _SHAPES for mark in shape.marks)


def find_key_kind(text: str) -> str | None:
    """Return the kind of the first key in ``text``, or None."""
    found = _find_spans(text)
    return found[0][2] if found else None


def find_keys(text: str) -> tuple[str, ...]:
    """Return the keys in ``text``, in order."""
    return tuple(text[start:end] for start, end, _ in _find_spans(text))


def mask(text: str) -> Masked:
    """Mask the keys in ``text``."""
    spans = _find_spans(text)
    if not spans:
        return Masked(text=text, count=0, originals=tuple(MASK.findall(text)))
    pieces: list[str] = []
    originals: list[str] = []
    at = 0
    for start, end, kind in (*spans, (len(text), len(text), "")):
        pieces.append(text[at:start])
        originals += MASK.findall(text[at:start])  # a literal mask in the text is restored as itself
        for row in re.split(r"(\n)", text[start:end]):
            is_key = row.strip("\"' \t\r\n\\") != ""
            pieces.append(f"[masked: {kind}]" if is_key else row)
            originals += [row] if is_key else []
        at = end
    return Masked(text="".join(pieces), count=len(spans), originals=tuple(originals))


def _find_spans(text: str) -> list[tuple[int, int, str]]:
    """Return start, end and kind of every key, in order and without overlaps."""
    found = []
    # One list of all marks: a generator for each shape would take most of the time of a search in many small files.
    for shape in dict.fromkeys([shape for mark, shape in _MARKS if mark in text]):
        group = "key" if "key" in shape.pattern.groupindex else 0
        found += [(*match.span(group), shape.kind) for match in shape.pattern.finditer(text)]
    apart: list[tuple[int, int, str]] = []
    for start, end, kind in sorted(found):
        if apart and start < apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]), apart[-1][2])
        else:
            apart.append((start, end, kind))
    return apart


VARIABLE = "ANTHROPIC_API_KEY"
HIDDEN = "(the key)"
"""The text that replaces the key."""

# A shorter key, as local servers accept, is not a secret, and ordinary words may contain it.
_MIN_SECRET = 8
# The start of a key is enough to identify it.
_START_CHARACTERS = 20
_PR_SET_DUMPABLE = 4

# The key of this process. It is global because a crash report must omit it wherever the crash happens.
_TAKEN: list["Secret"] = []


class Secret:
    """A text that ``repr``, ``vars`` and pickle do not show."""

    __slots__ = ("_reveal",)

    def __init__(self, text: str) -> None:
        """Hold ``text``, which may be empty, without surrounding white space."""
        stripped = text.strip()

        # A closure hides the text from vars() and serializers.
        def reveal() -> str:
            return stripped

        self._reveal = reveal

    def __repr__(self) -> str:
        """Return a placeholder."""
        return f"<{HIDDEN}>"

    def __reduce__(self) -> str:
        """Raise ``TypeError``, so that the text is never saved."""
        raise TypeError("a key cannot be pickled")

    def __bool__(self) -> bool:
        """Return whether the text is not empty."""
        return bool(self._reveal())

    def reveal(self) -> str:
        """Return the text, for the one place that sends it."""
        return self._reveal()

    def is_in(self, text: str) -> bool:
        """Return whether ``text`` contains the key, its start, or its base64 form."""
        return any(form in text for form in self._iter_forms())

    def hide_in(self, text: str) -> str:
        """Replace everything that ``is_in`` finds in ``text`` by ``(the key)``."""
        for form in self._iter_forms():
            text = text.replace(form, HIDDEN)
        return text

    def _iter_forms(self) -> Iterator[str]:
        # Longest first, so that a replacement leaves no rest of a longer form.
        text = self._reveal()
        if len(text) < _MIN_SECRET:
            return
        import base64  # Not at the top: every command takes the key, few search for it.

        encoded = text.encode("utf-8", "surrogateescape")
        yield base64.b64encode(encoded).decode().rstrip("=")
        yield base64.urlsafe_b64encode(encoded).decode().rstrip("=")
        yield text
        if len(text) > _START_CHARACTERS:
            yield text[:_START_CHARACTERS]


def take_key() -> Secret | None:
    """Remove the key from the environment of this process and return it; None if there was none."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    import ctypes

    # /proc/PID/environ shows the initial memory of the process, which `del os.environ[...]` does not clear.
    libc = ctypes.CDLL(None)
    libc.getenv.argtypes, libc.getenv.restype = [ctypes.c_char_p], ctypes.c_void_p
    address = libc.getenv(VARIABLE.encode())
    if address:
        ctypes.memset(address, ord("x"), len(os.fsencode(text)))
    del os.environ[VARIABLE]
    _TAKEN[:] = [Secret(text)]
    return _TAKEN[0]


def redact_keys(text: str, *, key: Secret | None = None) -> str:
    """Remove ``key``, the key of this process, and texts shaped like keys from ``text``."""
    for known in (*_TAKEN, *([] if key is None else [key])):
        text = known.hide_in(text)
    return mask(text).text


def protect_memory() -> None:
    """Prevent other processes of this user from reading or debugging this one (Linux), and core files of it."""
    import ctypes  # Not at the top: `cdd --version` does not need it.

    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
