"""Texts shaped like keys: found, and masked before they reach a model or a file that is shared. Pure.

Only shapes that hardly anything else has: a mask in the wrong place hides what somebody needs to see.
"""

import re
from dataclasses import dataclass


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
    """With ``[masked: KIND]`` in the place of a key, or of each line of it; it has the same number of lines."""
    count: int
    """How many keys were masked."""
    originals: tuple[str, ...]
    """What stood at each place where ``MASK`` now matches, in order."""

    def restored(self, text: str) -> str | None:
        """``text``, which is this one with something changed, with its keys back; nothing if a mask was touched."""
        originals = iter(self.originals)
        if len(MASK.findall(text)) != len(self.originals):
            return None
        return MASK.sub(lambda _: next(originals), text)


MASK = re.compile(r"\[masked: [a-zA-Z ]+\]")
"""What stands in the place of a key, or of one line of it."""


def _shape(kind: str, pattern: str, *marks: str) -> _Shape:
    return _Shape(kind=kind, marks=marks, pattern=re.compile(pattern))


_START, _END = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"
_INSIDE = r"(?:(?!-----)[\s\S])"
_BREAK = r"(?:\\[nr]|\s)+"
_NO_PASSWORD = r"(?i:(?:pass|passwd|password|pw|pwd|secret|changeme|x+|\*+|\.{3}|\d{1,5})@|\$\w|\$?\{|%[s(]|\[masked)"
"""What stands where a password would: its name, a variable, a number as of a port."""

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
        "Azure key", r"(?<![A-Za-z0-9])(?i:AccountKey)=(?P<key>[A-Za-z0-9+/]{40,}={0,2})", "AccountKey=", "accountkey="
    ),
    _shape("token", r"(?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{16,}", "eyJ"),
    _shape(
        "password",
        rf"(?<=[A-Za-z0-9]://)[^\s/:@\"'<>]{{0,100}}:(?!{_NO_PASSWORD})(?P<key>[^\s/\"'<>]{{1,256}})@(?=[\w.\[-])",
        "://",
    ),
    _shape(
        "private key",
        r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?P<key>"
        rf"(?={_INSIDE}{{0,20000}}?[A-Za-z0-9+/]{{32}}){_INSIDE}{{40,20000}}-----END [A-Z0-9 ]{{0,40}}-----"
        rf"|(?:{_BREAK}[A-Z][A-Za-z-]+: [\w,-]+){{0,3}}{_BREAK}[A-Za-z0-9+/=]{{32,}}(?:{_BREAK}[A-Za-z0-9+/=]{{4,}})*)",
        "PRIVATE KEY",
    ),
)


def find(text: str) -> str | None:
    """The kind of the first key-shaped text in ``text``, or nothing."""
    found = _spans(text)
    return found[0][2] if found else None


def mask(text: str) -> Masked:
    """``text`` with its keys masked."""
    pieces: list[str] = []
    originals: list[str] = []
    at = 0
    spans = _spans(text)
    for start, end, kind in spans:
        _keep(text[at:start], pieces, originals=originals)
        for row in re.split(r"(\n)", text[start:end]):
            is_key = row.strip("\"' \t\r\n\\") != ""
            pieces.append(f"[masked: {kind}]" if is_key else row)
            originals += [row] if is_key else []
        at = end
    _keep(text[at:], pieces, originals=originals)
    return Masked(text="".join(pieces), count=len(spans), originals=tuple(originals))


def _keep(text: str, pieces: list[str], *, originals: list[str]) -> None:
    """Add what holds no key; what looks like a mask in it stands for itself."""
    pieces.append(text)
    originals += MASK.findall(text)


def _spans(text: str) -> list[tuple[int, int, str]]:
    """Start, end and kind of every key, in order and apart from each other."""
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
