"""Commands whose work is hidden in a word: in an option's value, behind a mark, in another shell's text."""

import time

import pytest

from tests.cdd_agent.shell.project import judged

TABLE = {
    "read": """
        jobs -l
        wait
        git reflog -5
        git config user.name
        git config --global --list
        git stash show -p
        awk 'NR>=10 && NR<=20' a.py
        head -n "$n" a.py
        find . -name '*.py' -exec grep -l x {} +
        find . -name '*.py' | xargs -I{} grep -n x {}
        sed 's/[abc]/x/' a.py
        env -u HOME ls
    """,
    "other": """
        jobs -x ls
        wait -p PATH
        git remote -v update
        git remote show origin
        git reflog show -p --output=a.py
        git config --list --file=/etc/passwd
        git config --get x.y -f /etc/passwd
        git blame --contents=/etc/passwd a.py
        git grep -f/etc/passwd
        git -C /srv log
        find . -exec sort -o{} /dev/null \\;
        find . -exec cat /etc/{} \\;
        find . -exec cat ../../{} \\;
        find . | xargs -I{} cat /etc/{}
        find . | xargs -I{} sort -o{} a.py
        find -O3 /etc -name passwd
        find -- /etc -name passwd
        find -D tree /etc
        xargs -n $x ls
        nice -n $x ls
        exec -a $x ls
        sort -k $x a.py
        rg -g $x y
        head -n $x a.py
        awk -v $x '{print}' a.py
        awk '/a/{print > "b"}' a.py
        awk 'NR>1⏎{print | "sh"}' a.py
        pytest -k "a"$x
        pytest -k "$@"
        pytest -k *
        sed 's/[/]/g;s/w f/y/' a.py
        sed --in-place=/srv/* s/a/b/ a.py
        bash --rcfile evil -ic ls
        sort -o2>&1
        sort -o2 >&1 a.py
        mv .v* new
        bash -c "$x"
        zsh -c ls
    """,
    "loses": """
        jobs -x rm a.py
        git remote -v remove origin
        git remote --verbose prune origin
        git submodule --quiet foreach 'rm -rf .'
        git worktree --quiet remove lib
        git --attr-source x reset --hard
        find . -exec sh -c 'rm {}' \\;
        xargs -I{} bash -c "rm {}"
        xargs -I % sh -c 'rm %'
        xargs -a list rm
        xargs --arg-file list rm
        xargs -E x rm
        xargs --max-args 1 rm
        cp -rT new src
        cp --no-target-directory -r new src
        cp --parents new/a.py src
        mv -n -f new.py a.py
        mv -nf new.py a.py
        cp -n --force new.py a.py
        install -m 644 new.py a.py
        rsync -a new/ src/
        rsync --remove-source-files src/ lib/
        curl -sLo a.py http://example.org
        curl --output=a.py http://example.org
        wget -O a.py http://example.org
        env -S 'rm a.py'
        env '-Srm a.py'
        env --split-string='rm a.py'
        env -C src rm a.py
        $SUDO rm a.py
        $x $y rm -rf src
        timeout "$x" rm a.py
        bash -ic 'rm a.py'
        bash -ce 'rm a.py'
        bash -c -- 'rm a.py'
        bash --norc -c 'rm a.py'
        bash -O extglob -c 'rm a.py'
        zsh -c 'rm a.py'
        fish -c 'rm a.py'
    """,
    "outside": """
        mv a.py /dev/null
        env -C /srv rm a.py
        env --chdir=.. touch a.py
        install new.py /usr/bin/ls
        rsync -a src/ /srv/x
        tar -C/srv -xf a.tar
        tar --directory=/srv -xf a.tar
        curl -o/srv/x http://example.org
        zsh -c 'rm /srv/x'
        mv .g* new
        rm -rf .gi?
        sed -i s/a/b/ .g?t/config
    """,
}


CHAINS = (
    "jobs ",
    "env ",
    "xargs -a x ",
    "xargs -Z ",
    "find . -exec ",
    "timeout $x ",
    "git -C src ",
    "env -S env ",
    "$x ",
)


@pytest.mark.parametrize("link", CHAINS)
def test_a_chain_of_programs_takes_no_time(link: str) -> None:
    begun = time.process_time()
    judged(link * (24_000 // len(link)) + "status")
    assert time.process_time() - begun < 1


def _lines(kind: str) -> list[str]:
    return [line.strip().replace("⏎", "\n") for line in TABLE[kind].splitlines() if line.strip()]


@pytest.mark.parametrize("line", _lines("read"))
def test_needs_no_question(line: str) -> None:
    found = judged(line)
    assert (found.kind, found.loses) == ("read", "")


@pytest.mark.parametrize("line", _lines("other"))
def test_is_asked_about(line: str) -> None:
    assert judged(line).kind == "other"


@pytest.mark.parametrize("line", _lines("loses"))
def test_is_asked_about_each_time(line: str) -> None:
    assert judged(line).loses


@pytest.mark.parametrize("line", _lines("outside"))
def test_is_refused(line: str) -> None:
    assert judged(line).kind == "outside"
