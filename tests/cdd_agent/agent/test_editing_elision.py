"""Lines that stand for code left out, in many wordings; and lines that only look like them."""

import time

import pytest

from cdd_agent.agent.editing import find_elisions, require_whole
from cdd_agent.errors import UsageError

STAND_INS = """\
# ... rest of the code unchanged
// existing code here
... (rest unchanged)
<!-- unchanged -->
# rest of file remains the same
/* ... */
# ... existing code ...
// ... existing code ...
# ...
// ...
# …
/* ... rest of the styles ... */
{/* ... existing JSX ... */}
# (rest of the class is unchanged)
# [rest of the implementation omitted for brevity]
// rest of the function stays the same
-- rest of the query unchanged
; rest of file unchanged
% ... rest of document unchanged
# remaining methods remain unchanged
# the rest of the methods stay the same...
# Other methods remain unchanged
# ... other methods ...
# ... (other imports)
// ... keep existing code
# keep existing code as is
# Keep the rest of the file unchanged
# Existing imports remain the same
# previous code here
# ... previous tests unchanged ...
# same as before
# code omitted for brevity
pass  # ... existing implementation ...
...  # rest of the function unchanged
... rest of file ...
[... rest of code unchanged ...]
<!-- ... rest of the page ... -->
# unchanged
\"""... rest unchanged ...\"""
# everything else stays the same
# --- rest of file unchanged ---
# <rest of file unchanged>
# ...existing code...
# Rest of code goes here
# ... add existing methods here
# your existing code here
# ... more tests here
// other imports...
# Original code continues here""".splitlines()

CODE = """\
...
    ...
def f(): ...
x = ...
>>> f()
... x = 1
...     'continue',
print("...")
# the rest of the file is parsed later
# Rest of the arguments are passed on to pytest
# existing code in callers relies on this
# TODO: implement
# same as above but for columns
# unchanged files are skipped
# Leave the file as it is if nothing changed
# returns the text unchanged
# other methods are tried in order
# the code is unchanged since 2010
# existing rows stay where they are until commit
# Existing files are kept.
# Everything else is an error
# The remaining items are sorted by name
# The rest of the code below handles errors
# all tests pass here
# no changes
# ------
# imports
# ......................
#     ...
# continue
// other
/* existing */
<!-- comment -->
# Your code here""".splitlines()


@pytest.mark.parametrize("line", STAND_INS)
def test_a_line_that_stands_for_code_is_found(line: str) -> None:
    assert find_elisions(f"a = 1\n    {line}\n", before="", name="src/a.py") == ((2, line),)


@pytest.mark.parametrize("line", CODE)
def test_code_and_comments_that_say_something_are_let_pass(line: str) -> None:
    assert find_elisions(f"a = 1\n{line}\n", before="", name="src/a.py") == ()


def test_a_line_that_was_in_the_file_before_stays() -> None:
    assert find_elisions("def f():\n        # ...\n", before="# ...\n", name="a.py") == ()


def test_headings_of_prose_are_no_comments() -> None:
    assert find_elisions("# Unchanged\n\n# ...\n\n* unchanged\n", before="", name="CHANGES.md") == ()
    assert find_elisions("<!-- unchanged -->\n... (rest unchanged)\n", before="", name="CHANGES.md") == (
        (1, "<!-- unchanged -->"),
        (2, "... (rest unchanged)"),
    )


def test_the_error_names_the_line_and_says_what_to_do() -> None:
    with pytest.raises(UsageError) as refused:
        require_whole("a = 1\n# ... existing code ...\n", before="a = 2\n", name="src/a.py")
    assert refused.value.happened == (
        "Line 2 of the new text for src/a.py is a placeholder for omitted code: # ... existing code ...\n"
        "Nothing was changed."
    )
    assert "write the code itself" in refused.value.hint


@pytest.mark.parametrize(
    "line", ["# " + "the same " * 17, "# rest of " + "code " * 29, "# " + "the " * 38, "#" * 160, "# " + "." * 150]
)
def test_no_line_takes_long(line: str) -> None:
    started = time.process_time()
    find_elisions(f"{line}\n" * 100, before="", name="a.py")
    assert time.process_time() - started < 1.0
