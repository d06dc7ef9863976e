"""Shell lists: a table of attacks on a deny list, one on an allow list, and a trial against the real shell."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from bridge.policy.shell_line import parse_shell_line
from bridge.policy.shell_rules import ShellRules
from bridge.policy.shell_syntax import MAX_TEXT_BYTES

DENYING = ShellRules(allow=("*",), deny=("git push", "rm -rf", "kubectl delete --all"))
ALLOWING = ShellRules(allow=("git status", "ls", "timeout", "pytest", "bash", "find", "xargs"))
ASKING = ShellRules(allow=("*",), ask=("pip install",))

DENIED = [
    # quotes, escapes, white space
    "git push", "git  push", "git\tpush", "g\"i\"t push", "g\\it pu\\sh", "'git' \"push\"", "git pu''sh",
    "$'\\x67it' push",
    "$'g\\151t' $'\\u0070ush'", "$\"git\" push", "git \\\n push", "gi\\\nt push", "git push # comment",
    "a\rgit push", "git\u00a0push",
    # the same program by another path
    "/usr/bin/git push", "./git push", "../x/git push",
    # options between, values, aliases on the line
    "git -C x push", "git -c a=b push", "git --git-dir=x push", "git --no-pager push", "git -c alias.p=push p",
    "git -c alias.p='!git push' p", "git push --force", "git -C \"$D\" push",
    # lists, pipes, groups, functions, control structures
    "ls;git push", "ls\ngit push", "ls&&git push", "ls||git push", "ls|git push", "ls|&git push", "git push&",
    "(git push)",
    "{ git push; }", "! git push", "f(){ git push; }; f", "function f { git push; }", "if true; then git push; fi",
    "while git push; do :; done", "for i in 1; do git push; done", "case a in a) git push;; esac",
    "select i in a; do git push; done",
    "for ((i=0;i<$(git push);i++)); do :; done", "coproc git push", "time -p git push",
    # substitutions, wherever they stand
    "$(git push)", "`git push`", "echo \"$(git push)\"", "echo \"`git push`\"", "cat <(git push)", "ls >(git push)",
    "x=$(git push)",
    "a=(1 $(git push))", "echo ${x:-$(git push)}", "echo ${x:=`git push`}", "echo \"${x:-'$(git push)'}\"",
    "echo $(( $(git push) ))",
    "((  $(git push) ))", "[[ $(git push) ]]", "[ -n \"$(git push)\" ]", "ls > $(git push)", "x[$(git push)]=1",
    "echo `echo \\`git push\\``", "echo `g\\\\it push`", "for i in $(git push); do :; done",
    "case $(git push) in *) ;; esac", "export A=$(git push)",
    # text that becomes code
    "eval git push", "eval 'git' \"push\"", "eval \"$X\"", "trap 'git push' EXIT", "alias p='git push'",
    "source <(echo git push)",
    ". /dev/stdin", "x='a[$(git push)]'; echo $((x))", "printf -v 'a[$(git push)]' x", "x='$(git push)'; echo ${x@P}",
    # here-documents
    "ls||git >o push", "{git,push}\n}", "ls >&'$(git push)'", "git <<E push\nE\n",
    "cat <<E\n$(git push)\nE\n", "cat <<E\n`git push`\nE\n", "cat <<-E\n\t$(git push)\n\tE\n",
    "bash <<E\ngit push\nE\n",
    "cat <<E | bash\ngit push\nE\n", "bash <<< 'git push'", "cat <<A; git push\nA\n",
    # redirections that swallow words in the grammar
    "git >o push", ">o git push", "git 2>&1 push", "git<i push", "<<<x git push", "git &>o push", "git >|o push",
    # launchers
    "env X=1 git push", "env -i /bin/git push", "env -S 'git push'", "env --split-string='git push'",
    "sudo -u root -- git push",
    "timeout 5 git push", "timeout -k 1 5 bash -c 'git push'", "nohup git push", "command git push",
    "builtin command git push",
    "exec -a x git push", "nice -n 5 git push", "setsid git push", "stdbuf -o0 git push", "busybox sh -c 'git push'",
    "su -c 'git push'", "watch 'git push'", "find . -exec git push \\;", "find . -name x -execdir git push {} +",
    "xargs git push",
    "echo push | xargs git", "xargs -I{} git {}", "xargs -I % git %", "xargs -n1 sh -c 'git push'",
    "ssh-agent git push",
    "bash -c 'git push'", "bash -xc 'git push'", "bash -o pipefail -c 'git push'", "sh -c 'sh -c \"git push\"'",
    "bash -c \"$X\"",
    "bash", "echo git push | sh", "bash -s", "bash /dev/stdin", "bash <(echo git push)",
    "bash --rcfile f -c 'git push'",
    # words that only the running shell knows
    "$X push", "git $X", "\"$X\" push", "$(which git) push", "git pus?", "git {push,}", "g{i,}t push", "git [p]ush",
    "~/git push",
    "git ${X}push", "git ${X:-push}", "git \"$@\"",
    # options of the pattern, in any order, cluster or abbreviation
    "rm -rf x", "rm -fr x", "rm -r -f x", "rm x -fr", "rm -Rrvf x", "rm $FLAGS x", "kubectl --all delete pods",
    "kubectl delete --al pods",
    "kubectl -n x delete pods --all",
    # what does not parse
    "'", "if true; then git push", "git push \\", "git push )", "echo $(", "((", "cat <<E",
]  # fmt: skip

PASSING = [
    "git status", "git log push", "git log $X", "git -C sub status", "echo git push", "git commit -m 'git push'",
    "rm -r x", "rm -f x",
    "ls -la && git diff | head -5", "python3 -m unittest -q", "for i in 1 2 3; do echo $i; done",
    "grep -rn 'a|b' src | wc -l",
    "cat > f <<'E'\nhello `x` $(y)\nE\n", "cat > f <<E\nhello\nE\n", "x=1; echo $x",
    "find . -name '*.py' | xargs grep foo",
    "bash script.sh", "echo \"$(date)\"", "echo \"a `date` b\"", "sed -i 's/a/b/' f", "timeout 5 python3 x.py",
    "ls *.py",
    "git add -A && git commit -m \"fix: a\"", "printf '%s\\n' \"$HOME\"", "echo 'it'\\''s'", "[ -f a ] || touch a",
    "cd shop && python3 -m unittest -q 2>&1 | tail -20", "if [ -d x ]; then ls x; fi", "cat a \\\n  b", "echo $((1+2))",
    "python3 - <<'E'\nprint(`a`)\nE", "apply_patch <<'E'\n*** Begin Patch\n-a\n+b\n*** End Patch\nE",
    "awk '{print $1}' f",
    "echo é", "kubectl delete pod", "env FOO=1 python3 x", "git checkout -b fix # done",
]  # fmt: skip


@pytest.mark.parametrize("line", DENIED, ids=ascii)
def test_a_deny_list_is_not_passed_by(line: str) -> None:
    assert DENYING.judge(line)[0] == "deny"


@pytest.mark.parametrize("line", PASSING, ids=ascii)
def test_a_deny_list_lets_ordinary_work_pass(line: str) -> None:
    assert DENYING.judge(line) == ("allow", "allow[0]")


@pytest.mark.parametrize(
    "line",
    [
        "git push", "./git status", "/usr/bin/git status", "git -C x status", "git statusx", "LS", "\"$X\" ls", "$X",
        "ls; rm x",
        "ls\nrm x", "ls $(rm x)", "ls `rm x`", "ls | tee x", "ls > x; cat y", "function ls { rm x; }; ls",
        "ls <<E\n$(rm)\nE\n",
        "PATH=/x ls", "PATH=/x; ls", "export PATH=x; ls", "for PATH in /x; do ls; done", "LD_PRELOAD=x ls", "env ls",
        "timeout 5 rm", "timeout -k 1 5 pytest", "timeout pytest", "timeout $T pytest", "bash -c rm",
        "bash -c \"$X\"", "bash",
        "bash -xc 'ls; rm'", "bash -o a -c ls", "find . -exec rm {} +", "xargs rm", "xargs -n1 ls", "xargs",
        "ls 'unfinished",
        ">f", "", " ", "#x", "x=1", "[ -f x ] && ls",
    ],
    ids=ascii,
)  # fmt: skip
def test_an_allow_list_vouches_for_nothing_it_does_not_name(line: str) -> None:
    if line in ("bash", "xargs"):
        # The name alone is granted; without an operand a shell reads what nobody sees.
        assert ALLOWING.judge(line)[0] == ("deny" if line == "bash" else "allow")
    else:
        assert ALLOWING.judge(line) == ("deny", None)


@pytest.mark.parametrize(
    "line",
    [
        "git status -s", "ls -la | ls", "timeout 5 pytest -q", "i=1; ls $i", "l\"s\" x", "git 'status'",
        "ls && git status",
        "ls > f", "for i in 1 2; do ls $i; done", "(ls)", "ls \"$(git status)\"", "bash -c 'ls; git status'",
        "xargs ls",
        "find . -name x", "find . -exec ls {} +", "bash script.sh",
    ],
    ids=ascii,
)  # fmt: skip
def test_an_allow_list_lets_what_it_names_pass(line: str) -> None:
    assert ALLOWING.judge(line)[0] == "allow"


def test_ask_stands_between_allow_and_deny_and_the_rule_is_named() -> None:
    assert ASKING.judge("pip install x") == ("ask", "ask[0]")
    assert ASKING.judge("ls; env pip -q install x") == ("ask", "ask[0]")
    assert ASKING.judge("pip list") == ("allow", "allow[0]")
    both = ShellRules(allow=("*",), ask=("git",), deny=("git push",))
    assert both.judge("git status; git push") == ("deny", "deny[0]")
    assert both.judge("git status") == ("ask", "ask[0]")
    assert ShellRules(ask=("*",)).judge("ls") == ("ask", "ask[0]")
    assert ShellRules(allow=("*",), deny=("*",)).judge("ls") == ("deny", "deny[0]")


@pytest.mark.parametrize("line", ["'", "$X", "((", "if", "", "\0"])
def test_without_deny_and_ask_a_star_lets_every_line_pass_and_nothing_else_does(line: str) -> None:
    assert ShellRules(allow=("*",)).judge(line) == ("allow", "allow[0]")
    assert ShellRules(allow=("git",)).judge(line)[0] == "deny"
    assert ShellRules(allow=("*",)).judge(None) == ("deny", None)
    assert ShellRules().judge(line)[0] == "deny"


@pytest.mark.parametrize(
    "line",
    [
        "$(" * 20_000, "(" * 20_000, "a;" * 20_000, "bash -c '" * 500, "<<E " * 5_000, "`" * 20_001, "env " * 30_000,
        "'$(' \\`;" * 15_000, "a" * (MAX_TEXT_BYTES + 1), "\ud800",
    ],
    ids=lambda line: ascii(line)[:20],
)  # fmt: skip
def test_a_line_made_to_exhaust_the_reader_is_opaque(line: str) -> None:
    assert parse_shell_line(line).opaque


# --- against the real shell: whatever it runs as `git push` must have been denied -------------------------------------

PIECES = [
    "git", "push", "git push", "'git'", "p\"us\"h", "\\g", "it", " ", " ", " ", "\n", ";", "|", "&&", "||", "&", "(",
    ")", "{", "}", "$(", "`",
    "\"", "'", "\\", "\\\n", "<<E\n", "\nE\n", ">o ", "<o ", "2>&1", "<<<", "echo", "true", "if", "then", "fi",
    "while", "do", "done", "break",
    "for x in 1", "case a in", "a)", ";;", "esac", "f()", "f", "env", "command", "exec", "eval", "bash -c", "sh",
    "x=", "$x", "${x:-", "}", "$'\\x67'",
    "-C", "-c", "a", "[", "]", "[[", "]]", "((", "))", "$((", "#", "!", "time", "coproc", "~", "*", "{git,push}",
    "x[", "]=", "@P", "$[",
]  # fmt: skip
RANDOM_LINES = 1500
SHELL_SECONDS = 5


@pytest.fixture
def stubs(tmp_path: Path) -> dict[str, str]:
    """A PATH of stubs alone: the only program a random line can find is one that notes how it was called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text('#!/bin/sh\n[ "$1" = push ] && : > "$NOTE"\nexit 0\n')
    (folder / "git").chmod(0o755)
    for name in ("bash", "sh", "env"):
        program = shutil.which(name)
        assert program is not None
        (folder / name).symlink_to(program)
    return {"PATH": str(folder), "NOTE": str(tmp_path / "note"), "HOME": str(tmp_path), "FUNCNEST": "4"}


def runs_git_push(line: str, env: dict[str, str], cwd: Path) -> bool:
    """Whether bash calls `git push` for the line. A random line may recurse or loop, so it is bounded and ended."""
    note = Path(env["NOTE"])
    note.unlink(missing_ok=True)
    command = [str(shutil.which("bash")), "--norc", "-c", f"ulimit -t 2 -f 16\n{line}"]
    null = subprocess.DEVNULL
    shell = subprocess.Popen(command, env=env, cwd=cwd, stdin=null, stdout=null, stderr=null, start_new_session=True)
    try:
        shell.wait(SHELL_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait(SHELL_SECONDS)
    return note.exists()


def mutated(line: str, draw: random.Random) -> str:
    for _ in range(draw.randint(0, 3)):
        at = draw.randint(0, len(line))
        line = line[:at] + draw.choice(PIECES) + line[at + draw.choice((0, 0, 1)) :]
    return line


def test_whatever_the_real_shell_runs_as_git_push_was_denied(stubs: dict[str, str], tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    draw = random.Random(int(os.environ.get("MXS_PROOF_SEED", "7")))
    seeds = [
        line for line in DENIED if not any(word in line for word in ("rm", "kubectl", "watch", "ssh", "sudo", "su "))
    ]
    ran = 0
    for number in range(int(os.environ.get("MXS_PROOF_CASES", "0")) // 5 or RANDOM_LINES):
        line = mutated(draw.choice(seeds), draw) if number % 3 else "".join(draw.choices(PIECES, k=draw.randint(2, 12)))
        if "\0" in line or DENYING.judge(line)[0] == "deny":
            continue
        assert not runs_git_push(line, stubs, work), line
        ran += 1
    assert ran > 10


def test_the_trial_can_tell_a_line_that_pushes(stubs: dict[str, str], tmp_path: Path) -> None:
    assert runs_git_push("true && 'git' pu\\sh", stubs, tmp_path)
    assert not runs_git_push("git status", stubs, tmp_path)
