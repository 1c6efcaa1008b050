"""What the model says in the project that is killed: three attempts, each open at once."""

from tests.fakes.project import CODE, TEST, TEST_FILE


def _attempt(work: str, path: str, content: str) -> str:
    lines = "".join(f"          {line}\n" if line else "\n" for line in content.splitlines())
    return f"""\
- when: "^Work: executor sale {work} attempt [0-9]+$"
  content:
    - type: tool_use
      name: Write
      input:
        file_path: {path}
        content: |
{lines}    - type: tool_use
      name: CompleteImplementation
      input: {{implementation_files: [{path}], summary: Done.}}
"""


RECORDING = "".join(
    (
        _attempt("step 1 red", TEST_FILE, TEST),
        _attempt("step 1 green", "discount.py", CODE),
        _attempt("step 2 green", "SALE.md", "Everything is cheaper.\n"),
    )
)
