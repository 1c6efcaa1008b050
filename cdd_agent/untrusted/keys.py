"""Finds texts shaped like keys and masks them before they reach a model or a shared file. Pure.

Only distinctive shapes count: a mask in the wrong place hides text that somebody needs.
"""

import re
from dataclasses import dataclass


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
        self.pattern = re.compile(pattern)
        # Every match contains one of these, so the slower pattern is tried only on texts that do.
        self.marks = marks


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


def find_key_kind(text: str) -> str | None:
    """Return the kind of the first key in ``text``, or None."""
    found = _find_spans(text)
    return found[0][2] if found else None


def mask(text: str) -> Masked:
    """Mask the keys in ``text``."""
    pieces: list[str] = []
    originals: list[str] = []
    at = 0
    spans = _find_spans(text)
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
    for shape in _SHAPES:
        if any(mark in text for mark in shape.marks):
            group = "key" if "key" in shape.pattern.groupindex else 0
            found += [(*match.span(group), shape.kind) for match in shape.pattern.finditer(text)]
    apart: list[tuple[int, int, str]] = []
    for start, end, kind in sorted(found):
        if apart and start < apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]), apart[-1][2])
        else:
            apart.append((start, end, kind))
    return apart
