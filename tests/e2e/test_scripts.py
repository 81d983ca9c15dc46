"""Scripts are called from anywhere, by any path, and through links; folders that one names are one's own."""
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

from conftest import BUILD, REPO

SHELL = ["scripts/package", "scripts/run", "scripts/stress", "scripts/test", "scripts/test-integration", "scripts/test-packages", "bench/run", "bench/import"]
PYTHON = sorted(str(path.relative_to(REPO)) for path in (REPO / "bench").iterdir()
                if path.is_file() and path.suffix == "" and path.read_bytes().startswith(b"#!/usr/bin/python3"))


def said(command, cwd, code=0):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "CDPATH": "/usr:/tmp"})
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("script", SHELL + PYTHON)
def test_from_anywhere(script, folder):
    wanted = said([REPO / script, "--help"], REPO)
    assert "sage:" in wanted.lower() and script in wanted
    link = folder / pathlib.Path(script).name
    link.symlink_to(REPO / script)
    assert said([REPO / script, "--help"], folder) == wanted
    assert said([os.path.relpath(REPO / script, folder), "--help"], folder) == wanted
    assert said([f"./{pathlib.Path(script).name}", "--help"], (REPO / script).parent) == wanted
    assert said([link, "--help"], "/") == wanted
    unknown = said([os.path.relpath(REPO / script, folder), "--unknown"], folder, code=2)
    assert "--unknown" in unknown and "can't" not in unknown


ONCE = """
set -uo pipefail
exec 2>/dev/null
root={repo} out={folder}/out install=0
. "$root/scripts/testing.bash"
fill() {{
    [ ! -e "$out/part" ] || echo "half of it is left"
    echo filled
    touch "$out/part"
    [ "$1" != dies ] || kill -KILL $BASHPID
    [ "$1" != fails ]
}}
(once "$out" {key} fill {how})
echo "is $?"
"""


def test_what_is_kept_of_a_run_is_whole(folder):
    """scripts/testing.bash: what has failed or was killed begins anew, and so does another version."""
    def once(key, how):
        return said(["bash", "-c", ONCE.format(repo=REPO, folder=folder, key=key, how=how)], folder).split("\n")[:-1]

    assert once("a", "fails")[-2:] == ["filled", "is 1"]
    assert once("a", "dies")[-1] == "is 137"
    assert once("a", "works") == ["filled", "is 0"]
    assert once("a", "works") == once("a", "fails") == ["is 0"]
    assert once("b", "works") == ["filled", "is 0"]
    assert once("a", "works") == ["filled", "is 0"]


def test_check_layers(folder):
    link = folder / "link"
    link.symlink_to(REPO / "scripts/check-layers")
    assert said([link], folder) == said([REPO / "scripts/check-layers"], "/") == ""
    (folder / "tree" / "src").mkdir(parents=True)
    assert "no source files" in said([link, "tree"], folder, code=2)


def test_what_a_change_touches(folder):
    """Each folder of the sources has tests, each test that is named is there, and a change that is made is seen."""
    loader = importlib.machinery.SourceFileLoader("touched", str(REPO / "scripts/touched"))
    touched = importlib.util.module_from_spec(importlib.util.spec_from_loader("touched", loader))
    loader.exec_module(touched)
    folders = {path.parent for path in (REPO / "src").rglob("*.c")}
    for path in sorted(folders):
        assert touched.end_to_end([f"{path.relative_to(REPO)}/any.c"]), path
    for tests in touched.FOLDERS.values():
        for name in tests.split():
            assert (REPO / f"tests/e2e/test_{name}.py").exists(), name
    assert touched.end_to_end(["tests/e2e/test_tls.py", "src/store/memory/x.c", "LICENSE"]) == [
        "e2e tests/e2e/test_store_memory.py", "e2e tests/e2e/test_tls.py"]
    chosen = touched.unit_tests(BUILD.resolve(), ["src/base/log_ring.h", "src/net/patience.h", "tests/unit/test_server.c"])
    assert {f"unit tests/unit/test_{name}" for name in ("log_ring", "lying_peers", "server")} <= set(chosen)

    def git(*words):
        said(["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", folder, *words], "/")

    git("init", "-q", ".")
    (folder / "a").touch()
    git("add", "a")
    git("commit", "-q", "-m", "one")
    (folder / "b").touch()
    git("add", "b")
    git("commit", "-q", "-m", "two")
    touched.ROOT = folder
    assert touched.changed(None) == ["b"]
    (folder / "c").touch()
    assert touched.changed(None) == ["b", "c"]
    (folder / "a").write_text("more")
    assert touched.changed(None) == ["a", "c"]
    assert touched.changed("HEAD~1") == ["a", "b", "c"]


def test_benches_build_in_the_folder_of_the_repository():
    code = "import served; print(served.BUILD)"
    assert said([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(REPO / 'bench')!r}); {code}"], "/") == \
        f"{REPO / 'build'}\n"
    assert len(PYTHON) >= 10
    for script in PYTHON:
        assert '"build"' not in (REPO / script).read_text(), script


@pytest.mark.parametrize("script", ["bench/run", "bench/import"])
def test_a_build_folder_of_the_caller(script, folder):
    (folder / "mine").mkdir()
    assert f"{folder / 'mine'} is no build folder" in said([REPO / script, "mine"], folder, code=1)


@pytest.mark.slow
@pytest.mark.skipif(not (REPO / "configure").exists(), reason="configure was not made in the source folder")
def test_a_benchmark_names_the_library_that_is_missing(folder, configure_cache):
    cache = folder / "cache"
    cache.write_text(re.sub("(ac_cv_header_roaring_roaring_h)=.*", r"\1=no", configure_cache.read_text()))
    subprocess.run([REPO / "configure", "-q", f"--cache-file={cache}", "ac_cv_header_roaring_roaring_h=no"], cwd=folder, check=True)
    wanted = ("bench/session_sets needs CRoaring, which configure did not find: install libroaring-dev and run "
              "configure again\n")
    assert wanted in said(["make", "-s", "bench/session_sets"], folder, code=2)
    assert wanted in said([REPO / "bench/sessions", "--build", folder, "--only", "sets"], "/", code=1)
