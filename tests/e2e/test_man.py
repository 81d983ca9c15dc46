"""The manual pages that the build made, against the program: they leave nothing out and say nothing else; and completion
in bash."""
import functools
import json
import os
import re
import subprocess

import pytest

from conftest import BUILD, REPO, UNSEEN, run
from test_docs import SEED, examples

COMPLETION = REPO / "packaging" / "bash-completion" / "unseen"
IN_OVERVIEW = {"version", "help"}  # explained in unseen(1)


def subcommands():
    overview = run("help").stdout.decode()
    listed = overview[overview.index("Subcommands:"):overview.index("Examples:")]
    return dict(re.findall(r"^  ([a-z-]+) +(.+)$", listed, re.MULTILINE))


def pages():
    return sorted((BUILD / "man").glob("*.[1-8]"))


@functools.cache
def shown(page):
    """(what man shows, what it warns of)"""
    environment = {name: value for name, value in os.environ.items() if name != "MAN_KEEP_FORMATTING"}
    result = subprocess.run(["man", "--warnings=w", "-l", str(BUILD / "man" / page)], capture_output=True, timeout=60,
                            text=True, env=dict(environment, LC_ALL="C.UTF-8", MANWIDTH="80"))
    assert result.returncode == 0, result.stderr
    return re.sub(".\x08", "", result.stdout), result.stderr


def words(text):
    """Without line breaks, with the quotes that are typed, and without marks of code, which is bold in a page."""
    return " ".join(text.replace("’", "'").replace("‘", "'").replace("`", "").split())


def section(page, title):
    """A section of a page, as man shows it."""
    text = shown(page)[0]
    found = re.search(rf"^{title}$\n(.*?)^(?=\S)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no section {title}"
    return found.group(1)


def literal_blocks(page):
    """What stands between .EX and .EE, as it is typed."""
    blocks = re.findall(r"^\.EX\n(.*?)^\.EE$", (BUILD / "man" / page).read_text(), re.MULTILINE | re.DOTALL)
    for escape, char in {r"\(aq": "'", r"\(ga": "`", r"\(ha": "^", r"\(ti": "~", r"\-": "-", r"\e": "\\"}.items():
        blocks = [block.replace(escape, char) for block in blocks]
    return [re.sub(r"^\\&", "", block, flags=re.MULTILINE).rstrip("\n") for block in blocks]


def test_there_is_a_page_for_each_subcommand():
    expected = {f"unseen-{name}.1" for name in subcommands() if name not in IN_OVERVIEW}
    have = {page.name for page in pages()}
    missing = expected - have
    assert not missing, f"{missing}: name it in man/local.mk, and write man/unseen-SUBCOMMAND.md"
    assert have == expected | {"unseen.1", "unseen.conf.5", "unseen-commands.7"}


@pytest.mark.parametrize("page", [page.name for page in pages()] or ["none is built"])
def test_no_warning(page):
    assert shown(page)[1] == ""
    lint = subprocess.run(["mandoc", "-T", "lint", str(BUILD / "man" / page)], capture_output=True, text=True, timeout=60)
    assert lint.stdout + lint.stderr == ""
    text = (BUILD / "man" / page).read_text()
    assert re.search(r"^\.TH \S+ \d \"\d{4}-\d\d-\d\d\" \"unseen [0-9.]+\"", text, re.MULTILINE)
    typed = re.compile(r"^\.EX\n(.*?)^\.EE$", re.MULTILINE | re.DOTALL)
    assert "@" not in typed.sub("", text), "the name of a folder is not filled in"
    for block in typed.findall(text):
        assert not re.search(r"(?<!\\)[-'`^~]", block), "some systems show another character for it"
    for lists in re.findall(r'^\.SH "(?:ENVIRONMENT|EXIT STATUS|SIGNALS)"\n(.*?)(?=^\.SH)', text, re.MULTILINE | re.DOTALL):
        assert ".PP" not in lists and "\n: " not in lists, "an explanation is cut off from its term"
    titles = re.findall(r'^\.SH "(.*)"$', text, re.MULTILINE)
    assert titles[:1] == ["NAME"] and titles[-1] == "SEE ALSO" and len(titles) == len(set(titles))
    assert {"DESCRIPTION"} <= set(titles)
    for other, number in re.findall(r"\\fB(unseen[a-z.-]*)\\fP\((\d)\)", text.replace(r"\-", "-")):
        assert (BUILD / "man" / f"{other}.{number}").exists(), f"{page} refers to {other}({number}), which is not there"


def test_overview():
    listed = words(section("unseen.1", "SUBCOMMANDS"))
    for name, summary in subcommands().items():
        if name == "help":
            continue
        page = "" if name in IN_OVERVIEW else f": unseen-{name}(1)"
        assert f"{name} {summary}{page}" in listed
    for block in re.findall(r"^Examples:\n(.*)", run("help").stdout.decode(), re.DOTALL):
        assert words(block) == words(section("unseen.1", "EXAMPLES"))
    for option in re.findall(r"--[a-z]+", run("version", "--help").stdout.decode()):
        assert option in section("unseen.1", "OPTIONS")


@pytest.mark.parametrize("name", sorted(set(subcommands()) - IN_OVERVIEW))
def test_page_has_the_whole_help(name):
    """Every option of --help with what is said of it, every paragraph, every example."""
    page = f"unseen-{name}.1"
    text = run(name, "--help").stdout.decode()
    assert section(page, "NAME").strip() == f"unseen-{name} - {subcommands()[name]}"
    usage = re.search(r"^Usage: (.*(?:\n +.*)*)", text, re.MULTILINE).group(1)  # it may go on in further lines
    assert words(section(page, "SYNOPSIS")) == words(usage)
    assert "|" not in section(page, "DESCRIPTION")
    for title in ["OPTIONS", "EXIT STATUS", "FILES", "EXAMPLES", "SEE ALSO"]:
        assert section(page, title)

    options = re.search(r"^Options:\n(.*?)(\n\n|\Z)", text, re.MULTILINE | re.DOTALL).group(1)
    own, common = options.split("  -c, --config FILE ")
    described = section(page, "OPTIONS")
    for option in re.split(r"\n(?= +-)", own.strip("\n")):
        if option.strip():
            assert words(option) in words(described), option
    for option in ["-c FILE", "--config FILE", *re.findall(r"^ +(--[A-Za-z-]+(?: [A-Z]+)?)", common, re.MULTILINE)]:
        assert option in described, option

    for block in literal_blocks(page):
        assert words(block) in words(text)
    assert words(text[text.index("\nExamples:\n") + 11:]) == words(section(page, "EXAMPLES"))
    for paragraph in text[:text.index("Options:\n")].split("\n\n"):
        if not paragraph.startswith("Usage: "):
            assert words(paragraph) in words(section(page, "DESCRIPTION")), paragraph
    codes = re.search(r"^Exit code: (.*?)\.\n\n", text, re.MULTILINE | re.DOTALL)
    if codes:
        assert words(codes.group(1).replace(";", "")) == words(section(page, "EXIT STATUS"))


def test_configuration():
    """Every option of the table, in its order, with its default and all that the table says of it, and nothing else."""
    text = words(section("unseen.conf.5", "OPTIONS"))
    sample = run("check-config", "--sample").stdout.decode()
    at = 0
    for block in sample[sample.index("\n["):].split("\n\n"):
        help_text = " ".join(re.findall(r"^# (.*)", block, re.MULTILINE))
        for name, value in re.findall(r"^#([a-z_]+) =[ ]?(.*)$", block, re.MULTILINE):
            entry = words(f"{name} = {value or 'nothing'} {help_text}")
            assert entry in text[at:], entry
            at = text.index(entry, at) + len(entry)
    assert text[at:] == ""


def all_commands(server):
    with server.client() as client:
        found, rows = [], list(client.command("COMMAND"))
        while rows:
            row = rows.pop()
            found.append(row[0].decode().upper().replace("|", " "))
            rows += row[9]
    return found


def test_commands(make_server):
    """Each command and each path of HTTP, with an example; and the examples are those that test_docs.py runs."""
    commands = all_commands(make_server(hash_seed=SEED))
    assert len(commands) > 30
    documented = []
    for document, languages in {"docs/commands.md": ["redis", "redis3"], "docs/http.md": ["console tested"]}.items():
        documented += [text for _, text in sorted(sum((examples(document, language) for language in languages), []))]
    blocks = literal_blocks("unseen-commands.7")
    assert blocks == documented
    page = shown("unseen-commands.7")[0].split("\n")
    assert {line.strip() for block in blocks for line in block.split("\n")} <= {line.strip() for line in page}, \
        "what is shown could not be typed"

    text = words(section("unseen-commands.7", "COMMANDS"))
    typed = "\n".join(line[2:] for block in blocks for line in block.split("\n") if line.startswith("> ")) + "\n"
    for command in commands:
        assert re.search(rf"\b{command.split()[-1]}\b", text), f"unseen-commands(7) does not name {command}"
        assert re.search(rf"^{command}\b", typed, re.MULTILINE) or command in ("CONFIG", "CLIENT", "DEBUG"), \
            f"docs/commands.md has no example of {command}"

    text = words(section("unseen-commands.7", "HTTP"))
    asked = [line for block in blocks for line in block.split("\n") if line.startswith("$ curl")]
    paths = json.loads((REPO / "etc" / "openapi.json").read_text())["paths"]
    for path, methods in paths.items():
        for method in set(methods) & {"get", "post", "delete", "put"}:
            assert f"{method.upper()} {path}" in text, f"unseen-commands(7) does not name {method} {path}"
            pattern = r"\$U" + re.sub(r"\\{\w+\\}", "[^/ ]+", re.escape(path)) + r"([\" ?]|$)"
            sign = {"get": r"^(?!.*(--json|-X))", "post": r"^(?=.*--(json|data-binary))", "delete": r"^(?=.*-X DELETE)",
                    "put": r"^(?=.*-X PUT)"}[method]
            assert any(re.search(sign + ".*" + pattern, line) for line in asked), \
                f"docs/http.md has no example of {method} {path}"


def complete(*line, cwd=None):
    """What bash offers for the last word. The line is split as readline does it: = is a word of its own."""
    split = [part for word in line for part in (re.split("(=)", word) if "=" in word else [word]) if part or not word]
    script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}\n' \
             'complete -p unseen >/dev/null || exit 1\n' \
             '_unseen "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"; printf "%s\\n" "${COMPREPLY[@]}"'
    result = subprocess.run(["bash", "--norc", "-c", script, "bash", str(COMPLETION), str(UNSEEN), *split],
                            capture_output=True, text=True, timeout=60, cwd=cwd)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    return [offer for offer in result.stdout.split("\n") if offer]


def config_options():
    options = json.loads(run("check-config", "/dev/null", "--json").stdout)["options"]
    return {"--" + name.replace("_", "-") for name in options}


def test_completion_of_subcommands():
    assert complete("") == [*subcommands(), "--help", "--version"]
    assert complete("ch") == ["check", "check-config"]
    assert complete("help", "wh") == ["why"]
    assert complete("help", "why", "") == []
    assert complete("nothing-such", "--") == []


@pytest.mark.parametrize("name", sorted(set(subcommands()) - {"help"}))
def test_completion_of_options(name):
    listed = set(re.findall(r"^ +(?:-[a-z], )?(--[a-z][a-z-]*)", run(name, "--help").stdout.decode(), re.MULTILINE))
    configured = set() if name == "version" else config_options()
    offered = complete(name, "--")
    assert set(offered) == listed | configured and len(offered) == len(set(offered))
    assert complete(name, "--hel") == ["--help"]
    assert complete(name, "--", "--hel") == []


def test_completion_of_values(folder):
    """The words that an option takes are those that the program asks for."""
    for name, option, *more in [("import", "--format", "-"), ("bench", "--workload"), ("bench", "--reply"),
                                ("bench", "--arrivals", "--rate", "1"), ("check-config", "--skewed-time"),
                                ("check-config", "--on-damage"), ("check-config", "--log-level")]:
        refused = run(name, option, "no-such-word", *more, check=False)
        assert refused.returncode == 2, (name, option)
        wanted = re.search(r"expected (.*)", refused.stderr.decode()).group(1)
        assert complete(name, option, "") == re.findall(r"\w+", re.sub(r"\bor\b", "", wanted)), (option, wanted)
    assert complete("import", "--format", "n") == ["ndjson"]
    assert complete("import", "--format=n") == ["ndjson"]
    assert complete("bench", "--rate", "") == []
    assert complete("user", "--retention", "--") == []


def test_completion_of_files(folder):
    (folder / "plays of may.tsv").touch()
    (folder / "plays").mkdir()
    for line in [("import", "pl"), ("import", "--json", "pl"), ("check-config", "pl"), ("serve", "-c", "pl"),
                 ("import", "--", "pl"), ("user", "--config=pl"), ("serve", "--unix-socket", "pl")]:
        assert sorted(complete(*line, cwd=folder)) == ["plays", "plays of may.tsv"], line
    for line in [("backup", "pl"), ("months", "--data", "pl"), ("serve", "--data=pl")]:
        assert complete(*line, cwd=folder) == ["plays"], line
    for line in [("user", "pl"), ("why", "u1", "pl"), ("months", "pl"), ("backup", "--retention", "pl")]:
        assert complete(*line, cwd=folder) == [], line


def test_make_install(folder):
    """Everything goes where man and bash look for it."""
    subprocess.run(["make", "-s", "-C", str(BUILD), "install-man", "install-dist_bashcompletionDATA", "MAKEFLAGS=",
                    f"DESTDIR={folder}", "prefix=/usr"], check=True, timeout=600, stdout=subprocess.DEVNULL)
    for page in pages():
        installed = folder / "usr" / "share" / "man" / f"man{page.suffix[1:]}" / page.name
        assert installed.read_bytes() == page.read_bytes()
    assert (folder / "usr/share/bash-completion/completions/unseen").read_bytes() == COMPLETION.read_bytes()
