"""Every name that a document, a help text or a manual page states exists: subcommands and their options, options of the
configuration, metrics, alerts, HTTP paths, commands, files, links and their anchors, packages and pages. What a document
links to is where it is installed, too."""
import functools
import json
import re

import pytest

from conftest import BUILD, REPO, run
from test_man import subcommands

DOCUMENTS = sorted([*(REPO / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")), *(REPO / "docs").glob("*.md")])
TEXTS = DOCUMENTS + [REPO / "HACKING.md", REPO / "bench" / "NOTES.md"] + sorted((REPO / "man").glob("*.md"))
# Of other programs, and of files that one makes.
FOREIGN_PATHS = {"bin/redis-server"}
NO_OPTIONS = {"user", "key", "mmap_size", "p", "f", "n", "m", "k"}  # of SQLite; in formulas


def name(path):
    return str(path.relative_to(REPO))


@functools.cache
def text(path):
    return path.read_text()


def prose(path):
    """Without fences."""
    return re.sub(r"^```.*?^```$", "", text(path), flags=re.MULTILINE | re.DOTALL)


def spans(path):
    """What stands in `code`, or on a line of a fence."""
    fences = "\n".join(re.findall(r"^```.*?\n(.*?)^```$", text(path), re.MULTILINE | re.DOTALL))
    return re.findall(r"`([^`]+)`", prose(path)) + re.sub(r"\\\n\s*", " ", fences).split("\n")


@functools.cache
def anchors(path):
    found = set()
    for heading in re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
        n, base = 0, slug
        while slug in found:
            n += 1
            slug = f"{base}-{n}"
        found.add(slug)
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text(path)))


def links(path):
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", prose(path)) if "://" not in link and
            not link.startswith("mailto:")]


@functools.cache
def installed():
    """Documents and where they stand below the folder of documents, as packaging/local.mk has them."""
    rules = re.sub(r"\\\n", " ", (REPO / "packaging" / "local.mk").read_text())
    files = " ".join(re.findall(r"^(?:nobase_)?dist_(?:doc|docs)_DATA = (.*)$", rules, re.MULTILINE)).split()
    return {REPO / file for file in files}


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_links_lead_somewhere(path):
    wrong = []
    for link in links(path):
        target, _, anchor = link.partition("#")
        there = (path.parent / target).resolve() if target else path
        if not there.exists():
            wrong.append(f"{link}: no such file")
        elif anchor and there.suffix == ".md" and anchor not in anchors(there):
            wrong.append(f"{link}: no such heading")
        elif path in installed() and there.suffix == ".md" and there not in installed():
            wrong.append(f"{link}: is not installed")
        elif path in installed() and there.suffix != ".md" and there not in installed():
            wrong.append(f"{link}: is not installed")
    assert wrong == []


def test_every_document_is_listed():
    """In README.md, in llms.txt, and among what is installed."""
    for path in (REPO / "docs").glob("*.md"):
        assert f"(docs/{path.name})" in text(REPO / "README.md"), path
        assert f"(docs/{path.name})" in text(REPO / "llms.txt"), path
        assert path in installed()
    listed = re.findall(r"\]\(([^)]+)\)", text(REPO / "llms.txt"))
    assert [name for name in listed if not (REPO / name).exists()] == []


@functools.cache
def help_of(subcommand):
    return run("help", *([subcommand] if subcommand else [])).stdout.decode()


@functools.cache
def options():
    sample = run("check-config", "--sample").stdout.decode()
    return set(re.findall(r"^#?([a-z][a-z0-9_]*) =", sample, re.MULTILINE))


@functools.cache
def sections():
    return set(re.findall(r"^#?\[([a-z]+)\]", run("check-config", "--sample").stdout.decode(), re.MULTILINE))


@pytest.mark.parametrize("path", TEXTS + [*subcommands()], ids=lambda p: p if isinstance(p, str) else name(p))
def test_subcommands_and_their_options(path):
    wrong = []
    for span in help_of(path).split("\n") if isinstance(path, str) else spans(path):
        for said in re.findall(r"(?<![\w./=@-])unseen ((?:-c \S+ )?[a-z][a-z-]*(?:(?![|;&`#>]| \(\d).)*)", span):
            said = re.sub(r"^-c \S+ ", "", said)
            sub = said.split()[0]
            if sub not in subcommands():
                if span.startswith(("unseen ", "$ unseen ")) or re.search(r"(?:-- |\| )unseen ", span):
                    wrong.append(f"unseen {said}: no such subcommand")
                continue
            known = set(re.findall(r"--[a-z][a-z0-9-]*", help_of(sub) + help_of("")))
            known |= {"--" + o.replace("_", "-") for o in options()}
            known |= {f"--{s}-{o.replace('_', '-')}" for s in sections() for o in options()}
            for option in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", said.split(" -- ")[0]):
                if option not in known:
                    wrong.append(f"unseen {sub} {option}")
    assert wrong == []


@functools.cache
def sources():
    files = [*REPO.glob("src/**/*.[ch]"), *REPO.glob("src/**/*.inc"), *REPO.glob("sql/**/*.sql")]
    return "\n".join(f.read_text() for f in files)


@functools.cache
def literals():
    """Words of the strings of the program: names of figures are among them."""
    strings = " ".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', sources()))
    return set(re.findall(r"[a-z][a-z0-9_]+", strings))


def is_metric(metric):
    base = re.sub(r"_(bucket|count|sum)$", "", metric)
    for whole in (metric, base):
        bare = whole.removeprefix("unseen_")
        for ending in ("", "_total", "_seconds", "_bytes", "_seconds_total", "_ratio", "_info"):
            if bare.endswith(ending) and bare.removesuffix(ending) in literals():
                return True
        if whole in literals():
            return True
    return False


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_metrics_and_alerts(path):
    alerts = set(re.findall(r"alert: (\w+)", (REPO / "etc" / "alerts.yml").read_text()))
    said = text(path)
    wrong = [a for a in re.findall(r"(?<![\w/])Unseen[A-Z][A-Za-z]+", said)
             if a not in alerts and a not in (REPO / "proto").joinpath("unseen", "v1", "unseen.proto").read_text()
             and a not in sources() and not (REPO / "tests").glob(f"**/{a}*")]
    wrong += [a for a in re.findall(r"alerts? `(\w+)`", said) if a not in alerts]
    wrong += [a for a in re.findall(r"`([A-Z][a-z]+[A-Z][A-Za-z]+)`", said) if "Unseen" + a in alerts]
    wrong += [m for m in re.findall(r"(?<![\w./-])unseen_[a-z0-9_]+(?![\w.(/-]|\*)", said)
              if not is_metric(m) and not (REPO / "sql").joinpath(m).exists() and m != "unseen_pb2"]
    assert wrong == []


@functools.cache
def paths():
    routes = (REPO / "src" / "http" / "routes.c").read_text()
    return set(json.loads((REPO / "etc" / "openapi.json").read_text())["paths"]) | set(re.findall(r'"(/[^"]*)"', routes))


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_http_paths(path):
    wrong = []
    for said in re.findall(r"(?<![\w/}.])/(?:v1|healthz|readyz|metrics|openapi)[\w/{}:.-]*", text(path)):
        said = said.rstrip(".:")
        good = any(re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(p)), said) for p in paths())
        if not good and said not in ("/v1", "/v1/") and not any(p.startswith(said) for p in paths()):
            wrong.append(said)
    assert wrong == []


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_files_of_this_project(path):
    """`src/...` and the like, where a document of the sources names them; an installed one names what is installed."""
    wrong = []
    for said in re.findall(r"(?<![\w/.$-])(?:src|docs|etc|scripts|bench|tests|packaging|proto|man|sql)/[\w./{},*-]*\w",
                           text(path)):
        # What stands for a name of one's own has capitals, as tests/unit/test_X.c.
        if re.search(r"[{*]|\b[A-Z]+\b|_X\b", said) or said in FOREIGN_PATHS:
            continue
        if not (REPO / said).exists() and not list(REPO.glob(said + ".*")) and not (BUILD / said).exists():
            wrong.append(said)
    assert wrong == []


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_manual_pages(path):
    pages = {page.name for page in (BUILD / "man").glob("*.[1-8]")}
    said = re.findall(r"\b(unseen[a-z.-]*)\**\(([1-8])\)", text(path)) + \
        [(n, s) for s, n in re.findall(r"\bman ([1-8])? ?(unseen[a-z.-]*)", text(path)) if s]
    assert [f"{n}({s})" for n, s in said if f"{n}.{s}" not in pages] == []


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_packages(path):
    """What apt is told to install, of ours."""
    ours = set(re.findall(r"^Package: (\S+)$", (REPO / "packaging" / "debian" / "control").read_text(), re.MULTILINE))
    said = [w for line in re.findall(r"apt(?:-get)? install(.*)", text(path)) for w in re.findall(r"[\w.+-]+", line)]
    assert [w for w in said if re.fullmatch(r"unseen[a-z0-9-]*", w) and w not in ours] == []


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_options_of_the_configuration(path):
    """`name = value` is an option's."""
    wrong = []
    for span in re.findall(r"`([^`]+)`", prose(path)):
        found = re.match(r"([a-z][a-z0-9_]*) = \S", span)
        if found and found.group(1) not in options() and found.group(1) not in NO_OPTIONS:
            wrong.append(span)
    assert wrong == []


@functools.cache
def commands():
    """Of the table, by name: the role that each needs, and its subcommands likewise."""
    table = (REPO / "src" / "resp" / "table.c").read_text()
    subs, top = {}, {}
    for block, rows in re.findall(r"^static const struct command (\w+)\[\] = \{\n(.*?)^\};", table, re.MULTILINE | re.DOTALL):
        subs[block] = re.findall(r'^    \{"([a-z-]+)", -?\d+, ROLE_([A-Z]+)', rows, re.MULTILINE)
    rest = table[table.index('{"auth"'):]
    for said in re.split(r"^    (?=\{\")", rest, flags=re.MULTILINE):
        found = re.match(r'\{"([a-z]+)", -?\d+, ROLE_([A-Z]+)', said)
        if found:
            group = re.search(r"\b(\w+_subs)\b", said)
            top[found.group(1).upper()] = (found.group(2), {n.upper(): r for n, r in subs[group.group(1)]} if group else {})
    return top


def test_every_command_has_its_place_in_the_manual():
    manual = text(REPO / "docs" / "commands.md")
    begin = manual[:manual.index("## Rules that hold for all")] + manual[manual.index("## Commands for operators"):]
    assert "PLAYED" in commands() and "DEBUG" in commands()
    assert [n for n in commands() if not re.search(rf"\b{n}\b", begin)] == []


def test_roles_are_those_of_the_table():
    """Each command that needs a role stands with that one: alone, with its subcommand, or as a rest of them."""
    security = text(REPO / "docs" / "security.md")
    said = dict(re.findall(r"^- \*\*`(\w+)`\*\*: (.*?)(?=^- |^$)",
                           security[security.index("## Accounts"):security.index("## Exposing")], re.MULTILINE | re.DOTALL))
    wrong = []
    for command, (role, subs) in commands().items():
        # LIST of one command and GET of another are not all: a command with several roles has one named by its rest.
        for sub, need in (subs or {"": role}).items():
            where = said.get(need.lower())
            if where is not None and not re.search(rf"`{command}( {sub})?`|rest of [^;.]*`{command}`", where):
                wrong.append(f"{command} {sub}: {need}")
    assert wrong == []


def test_roles_in_help_are_those_of_the_document():
    roles = r"(?:ask|record|forget|load|watch|admin)"
    security = text(REPO / "docs" / "security.md")
    needs = security[security.index("- **The subcommands** that talk to a server"):security.index("## Exposing")]
    said = dict(re.findall(rf"`([a-z]+)(?: --to)?`\s(?:needs )?((?:`{roles}`(?:, |,?\sand\s|\s|))+)", needs))
    wrong = []
    for sub in said:
        helped = re.search(rf"with the roles ((?:{roles}(?:,\s+|\s+and\s+|))+)", help_of(sub))
        if helped and set(re.findall(roles, helped[1])) != set(re.findall(roles, said[sub])):
            wrong.append((sub, helped[1], said[sub]))
    assert "rejoin" in said and wrong == []


def test_threads_are_those_that_beat():
    monitoring = text(REPO / "docs" / "monitoring.md")
    table = monitoring[monitoring.index("| thread |"):monitoring.index("A thread without a heartbeat")]
    beats = set(re.findall(r'heartbeat_begin\([^;]*?"([a-z -]+)"\)', sources()))
    beats |= set(re.findall(r'task_start\([^;]*?"([a-z -]+)", TASK_BEATS', sources()))
    beats |= set(re.findall(r'\.task = "([a-z -]+)"', sources()))  # of a courier
    assert len(beats) > 20 and [b for b in sorted(beats) if f"`{b}`" not in table] == []


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_subcommands_of_commands(path):
    wrong = []
    for span in re.findall(r"`([A-Z]+ [A-Z-]+)(?![\w-])[^`]*`", prose(path)):
        command, sub = span.split()
        subs = commands().get(command, (None, {}))[1]
        if subs and sub not in subs and span != "CONFIG SET":  # of Redis; ours has none
            wrong.append(span)
    assert wrong == []


def test_the_page_of_ceph_has_a_row_for_each_subcommand():
    """It says of each what it does with a pool."""
    table = text(REPO / "docs/rados.md")
    assert [name for name in subcommands() if f"`{name}`" not in table] == []


def test_journeys_lead_through_functions_that_are_there():
    """The tables of HACKING.md that name a file and a function of it, of at most 20 files each."""
    journeys = re.findall(r"^### (A .*?)\n(.*?)(?=^##)", text(REPO / "HACKING.md"), re.MULTILINE | re.DOTALL)
    assert len(journeys) == 3
    wrong = []
    for title, body in journeys:
        rows = re.findall(r"^\| `(src/[^`]+)` \| `(\w+)` \|", body, re.MULTILINE)
        assert 10 <= len(rows) and len(set(re.findall(r"`(src/[^`]+)`", body))) <= 20, title
        wrong += [f"{file}: {function}" for file, function in rows
                  if not re.search(rf"^[a-z][^;\n]*\b{function}\([^;]*?\)\n{{", text(REPO / file), re.MULTILINE)]
    assert wrong == []
