"""Texts shaped like keys: found, and masked before they reach a model or a file that is shared. Pure.

Only shapes that hardly anything else has: a mask in the wrong place hides what somebody needs to see.
"""

import re
from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """One kind of key."""

    kind: str
    marks: tuple[str, ...]
    """One of them is in every text that the pattern matches: without any, the pattern need not be tried."""
    pattern: re.Pattern[str]
    """The group ``key``, if there is one, is the secret part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """A text without its keys."""

    text: str
    count: int
    """How many were masked."""


MASK = re.compile(r"\[masked: [a-zA-Z ]+\]")
"""What stands in the place of a key, or of one line of it."""


def _shape(kind: str, pattern: str, *marks: str) -> _Shape:
    return _Shape(kind=kind, marks=marks, pattern=re.compile(pattern))


_START, _END = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"
_BREAK = r"(?:\\[nr]|\s)+"
_BODY = r"(?:(?!-----)[\s\S]){0,20000}?"

_SHAPES = (
    _shape("Anthropic key", rf"{_START}sk-ant-[\w-]{{8,}}", "sk-ant-"),
    _shape("OpenAI key", rf"{_START}sk-(?:proj|svcacct|admin)-[\w-]{{20,}}", "sk-proj-", "sk-svcacct-", "sk-admin-"),
    _shape("OpenAI key", rf"{_START}sk-[A-Za-z0-9]{{48}}{_END}", "sk-"),
    _shape("AWS key", rf"{_START}(?:AKIA|ASIA)(?![0-9A-Z]*EXAMPLE)[0-9A-Z]{{16}}{_END}", "AKIA", "ASIA"),
    _shape(
        "AWS key",
        r"(?i:aws_?secret_?access_?key|secretaccesskey)[\"']?\s{0,4}[=:]\s{0,4}[\"']?"
        r"(?P<key>(?![A-Za-z0-9/+]*EXAMPLE)[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
        *("ccess_key", "CCESS_KEY", "ccessKey", "ccesskey"),
    ),
    _shape("GitHub token", rf"{_START}gh[pousr]_[A-Za-z0-9]{{36,}}", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    _shape("GitHub token", rf"{_START}github_pat_\w{{22,}}", "github_pat_"),
    _shape("GitLab token", rf"{_START}gl(?:pat|ptt|dt|rt)-[\w-]{{20,}}", "glpat-", "glptt-", "gldt-", "glrt-"),
    _shape("Slack token", rf"{_START}xox[abeoprs]-[0-9A-Za-z][0-9A-Za-z-]{{9,}}", "xox"),
    _shape("Slack token", rf"{_START}xapp-\d-[0-9A-Z]+-\d+-[0-9a-f]{{20,}}", "xapp-"),
    _shape("Slack hook", r"https://hooks\.slack\.com/services/(?P<key>T\w+/B\w+/\w{16,})", "hooks.slack.com"),
    _shape("Google key", rf"{_START}AIza[\w-]{{35}}{_END}", "AIza"),
    _shape("Google secret", rf"{_START}GOCSPX-[\w-]{{28}}{_END}", "GOCSPX-"),
    _shape("Google token", rf"{_START}ya29\.[\w-]{{30,}}", "ya29."),
    _shape("Stripe key", rf"{_START}[rs]k_live_[A-Za-z0-9]{{16,}}", "k_live_"),
    _shape("SendGrid key", rf"{_START}SG\.[\w-]{{22}}\.[\w-]{{43}}", "SG."),
    _shape("npm token", rf"{_START}npm_[A-Za-z0-9]{{36}}{_END}", "npm_"),
    _shape("PyPI token", rf"{_START}pypi-AgE[\w-]{{50,}}", "pypi-AgE"),
    _shape("Hugging Face token", rf"{_START}hf_[A-Za-z0-9]{{34}}{_END}", "hf_"),
    _shape("DigitalOcean token", rf"{_START}do[opr]_v1_[0-9a-f]{{64}}", "_v1_"),
    _shape(
        "private key",
        r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?P<key>"
        rf"{_BODY}[A-Za-z0-9+/]{{32}}{_BODY}-----END [A-Z0-9 ]{{0,40}}-----"
        rf"|(?:{_BREAK}[A-Z][A-Za-z-]+: [\w,-]+){{0,3}}{_BREAK}[A-Za-z0-9+/=]{{32,}}(?:{_BREAK}[A-Za-z0-9+/=]{{4,}})*)",
        "PRIVATE KEY",
    ),
)


def find(text: str) -> str | None:
    """The kind of the first key-shaped text in ``text``, or nothing."""
    return next((shape.kind for shape in _SHAPES if _may_hold(text, shape) and shape.pattern.search(text)), None)


def mask(text: str) -> Masked:
    """``text`` with ``[masked: KIND]`` in the place of every key; it has the same number of lines."""
    count = 0
    for shape in _SHAPES:
        if _may_hold(text, shape):
            text, found = shape.pattern.subn(partial(_blanked, kind=shape.kind), text)
            count += found
    return Masked(text=text, count=count)


def _may_hold(text: str, shape: _Shape) -> bool:
    return any(mark in text for mark in shape.marks)


def _blanked(match: re.Match[str], *, kind: str) -> str:
    """The match with every line of its secret part masked."""
    start, end = match.span("key") if "key" in match.re.groupindex else match.span()
    whole, offset = match[0], match.start()
    secret = whole[start - offset : end - offset]
    rows = (f"[masked: {kind}]" if row.strip("\\nrt \t\r\"'") else row for row in secret.split("\n"))
    return whole[: start - offset] + "\n".join(rows) + whole[end - offset :]
