"""The examples of the documents, run as they stand against a real server.

A fence that says ```redis (or ```redis3, for RESP3) is an example: a line "> ..." is typed into redis-cli, what follows
is what it must show. ```console tested is the same for a shell and "$ ...". "..." in what is shown stands for anything, also
for whole lines; "  # ..." behind a command is a remark. All examples of a kind in a document share one folder, and run in
their order; what stands in ```ini policies is in force meanwhile. Documents whose examples need more than that have tests of their own (OTHERS).
"""
import configparser
import os
import re
import shutil
import subprocess

import pytest

from conftest import REPO, UNSEEN, http_url
from unseen_grpc import grpc_address

SEED = "5eed5eed5eed5eed"
INSTALLED = "/usr/share/unseen/proto"
OTHERS = {"docs/inspect.md", "docs/kafka.md", "docs/replicas.md", "docs/clients.md"}


def examples(document, language):
    """(line, text) of each fence with that info string."""
    found, fence, start = [], None, 0
    for number, line in enumerate((REPO / document).read_text().split("\n"), 1):
        if fence is None and line.startswith("```"):
            fence, start, info = [], number + 1, line[3:].strip()
        elif fence is not None and line.startswith("```"):
            if info == language:
                found.append((start, "\n".join(fence)))
            fence = None
        elif fence is not None:
            fence.append(line)
    return found


def split(text, prompt):
    """What is typed and what is shown, without remarks."""
    typed, shown = [], []
    for line in text.split("\n"):
        if line.startswith(prompt):
            typed.append(re.sub(r"\s{2,}# .*$", "", line[len(prompt):]))
        else:
            shown.append(line)
    return typed, shown


def tidy(text):
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip())


def compare(document, line, shown, output):
    want, have = tidy("\n".join(shown)), tidy(output)
    pattern = ".*?".join(re.escape(piece) for piece in want.split("..."))
    if re.fullmatch(pattern, have, re.DOTALL) is None:
        pytest.fail(f"{document}:{line}: it says\n{want}\n\nand really it is\n{have}", pytrace=False)


def documents(*languages):
    """Those with examples, of all that there are."""
    found = ["README.md", *(f"docs/{path.name}" for path in sorted((REPO / "docs").glob("*.md")))]
    return [d for d in found if d not in OTHERS and any(examples(d, language) for language in languages)]


@pytest.mark.parametrize("document", documents("redis", "redis3"))
def test_redis_examples(make_server, document):
    read = configparser.ConfigParser()
    read.read_string("".join(text + "\n" for _, text in examples(document, "ini policies")))
    policies = {name.removeprefix("policy "): dict(read[name]) for name in read.sections()}
    server = make_server(hash_seed=SEED, policies=policies, legacy_redis="127.0.0.1:1")  # where nobody listens
    blocks = [(line, "-2", text) for line, text in examples(document, "redis")]
    blocks += [(line, "-3", text) for line, text in examples(document, "redis3")]
    assert blocks, f"{document} has no examples"
    for line, protocol, text in sorted(blocks):
        typed, shown = split(text, "> ")
        result = subprocess.run(["redis-cli", protocol, "--no-raw", "-p", str(server.port)], text=True, timeout=240,
                                input="\n".join(typed) + "\n", capture_output=True)
        told = re.sub(r"^\(\d+\.\d+s\)\n", "", result.stdout, flags=re.MULTILINE)  # of what took more than half a second
        compare(document, line, shown, told + result.stderr)


@pytest.mark.parametrize("document", documents("console tested"))
def test_shell_examples(make_server, folder, document):
    """In a folder in which `unseen` is on the path, the sources are in $SOURCES, and a server answers HTTP at $U, which
    the README writes as http://127.0.0.1:7980, and gRPC at $G."""
    server = make_server(hash_seed=SEED, http="127.0.0.1:0", grpc="127.0.0.1:0", backup_root=str(folder / "work" / "served-backups"))
    environment = dict(os.environ, PATH=f"{UNSEEN.parent}:{os.environ['PATH']}", SOURCES=str(REPO), TZ="UTC",
                       PORT=str(server.port), U=http_url(server), G="http://" + grpc_address(server), LC_ALL="C.UTF-8")
    work = folder / "work"
    work.mkdir()
    shutil.copy(REPO / "etc" / "unseen.conf", work)
    (work / "served").symlink_to(server.data)
    blocks = examples(document, "console tested")
    assert blocks, f"{document} has no examples"
    for line, text in blocks:
        typed, shown = split(text.replace("http://127.0.0.1:7980", "$U").replace(INSTALLED, "$SOURCES/proto"), "$ ")
        result = subprocess.run(["bash"], input="\n".join(typed) + "\n", cwd=work, env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        compare(document, line, shown, result.stdout)


def test_the_first_page():
    """A command stands within the first 25 lines, and what is compared is what the whole comparison says."""
    readme = (REPO / "README.md").read_text()
    assert "```\nscripts/run" in "\n".join(readme.split("\n")[:25])

    def rows(text):
        return re.findall(r"^\|.*\|$", re.sub(r" \[\d\](?!\()", "", text), re.MULTILINE)
    few = rows(readme)
    assert len(few) == 2 + 6 and set(few) <= set(rows((REPO / "docs" / "comparison.md").read_text()))


def test_sample_configuration(folder):
    """etc/unseen.conf is what the table of options says, and docs/configuration.md is made of it."""
    sample = subprocess.run([UNSEEN, "check-config", "--sample"], capture_output=True, text=True, check=True).stdout
    assert sample == (REPO / "etc" / "unseen.conf").read_text()
    made = subprocess.run([REPO / "scripts" / "configuration"], capture_output=True, text=True, check=True).stdout
    assert made == (REPO / "docs" / "configuration.md").read_text(), "scripts/configuration > docs/configuration.md"
    described = re.findall(r"^- \*\*`([a-z_]+)`\*\* \(([^;)]*)[;)]", made, re.MULTILINE)  # name (default; range)
    options = re.findall(r"^#([a-z_]+) =[ ]?(.*)$", sample, re.MULTILINE)  # two sections may have the same name
    assert described == [(name, f"`{default}`" if default else "none") for name, default in options]


def test_each_alert_has_its_runbook():
    """A heading of the runbook, to which the alert leads, in the folder where it is installed."""
    alerts = re.findall(r"- alert: (\w+)\n(?:(?!- alert:).*\n)*? +runbook_url: \"(.*)\"", (REPO / "etc" / "alerts.yml").read_text())
    assert [name for name, _ in alerts] == re.findall(r"- alert: (\w+)", (REPO / "etc" / "alerts.yml").read_text())
    place = "file:///usr/share/doc/unseen/docs/runbook.md#"
    assert [url for name, url in alerts if url != place + name.lower()] == []
    headings = re.findall(r"^### (\w+)$", (REPO / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(name for name, _ in alerts)


def test_what_the_runbook_types(make_server, folder):
    """Each command of ours there is one: it is answered, be it by an error of what this server lacks."""
    server = make_server(hash_seed=SEED, http="127.0.0.1:0", backup_root=str(folder / "backups"))
    text = (REPO / "docs" / "runbook.md").read_text()
    typed = [span for span in re.findall(r"`([^`]+)`", text) if re.match(r"(unseen|redis-cli|curl) \S", span)]
    assert len(typed) > 40
    for span in typed:
        span = re.sub(r"^redis-cli (-s \S+)?", f"redis-cli -p {server.port} ", span.replace("http://127.0.0.1:7980", http_url(server)))
        span = span.replace("/var/lib/unseen-backups", str(folder / "backups")).replace("127.0.0.1:7979", f"127.0.0.1:{server.port}")
        if span.startswith("unseen ") and "--to" not in span:
            span += f" -c {server.config}"
        if re.search(r"clone|rejoin|doctor", span):
            span += " --help"
        done = subprocess.run(["bash", "-c", span], env=dict(os.environ, PATH=f"{UNSEEN.parent}:{os.environ['PATH']}"),
                              cwd=folder, capture_output=True, text=True, timeout=60)
        assert done.returncode in (0, 1), (span, done.stderr)
        assert not re.match(r"ERR (unknown|wrong number)|ERR .*Try ", done.stdout), (span, done.stdout)


def test_what_install_changes_in_the_configuration(folder):
    """Each sed of install.md meets a line of the sample; a moved folder's backups stay where the sandbox allows them."""
    config = folder / "unseen.conf"
    shutil.copy(REPO / "etc" / "unseen.conf", config)
    edits = re.findall(r"^\$ (sed -i .* )/etc/unseen/unseen\.conf$", (REPO / "docs" / "install.md").read_text(), re.MULTILINE)
    for edit in edits:
        before = config.read_text()
        subprocess.run(["sh", "-c", f"{edit} {config}"], check=True)
        assert config.read_text() != before, edit
    shown = subprocess.run([UNSEEN, "check-config", config], capture_output=True, text=True, check=True).stdout
    changed = dict(re.findall(r"^\* +(\w+) +(\S+) +line", shown, re.MULTILINE))
    assert changed == {"data": "/srv/unseen", "backup_root": "/var/lib/unseen-backups"}
