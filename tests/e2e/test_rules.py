"""The checks of scripts/test can see red."""
import re
import shutil
import subprocess

import pytest

from conftest import REPO


def layers(root):
    done = subprocess.run([str(REPO / "scripts/check-layers"), str(root)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_this_repository_is_clean():
    assert layers(REPO) == (0, "")


@pytest.mark.parametrize("path, text, says", [
    ("src/base/x.c", '#include "store/store.h"\n', "includes upwards"),
    ("src/store/x.c", '#include "dedup/dedup.h"\n', "includes upwards"),
    ("src/net/x.c", '#include "dedup/dedup.h"\n', "includes upwards"),
    ("src/dedup/x.c", "#include <sqlite3.h>\n", "sqlite3.h"),
    ("src/store/x.c", "#include <sqlite3.h>\n", "sqlite3.h"),
    ("src/store/sqlite/x.c", "#include <uv.h>\n", "uv.h"),
    ("src/store/x.c", "int64_t now(void) { return time(NULL); }\n", "asks the system for time"),
    ("src/net/x.c", "  uint64_t t = uv_now (loop);\n", "asks the system for time"),
    ("src/store/sqlite/index/x.c", '#include "store/sqlite/db/db.h"\n', "knows no SQLite"),
    ("src/dedup/x.c", '#include "store/sqlite/sqlite_store.h"\n', "may know an engine"),
    ("src/store/x.c", '#include "store/memory/memory_store.h"\n', "may know an engine"),
    ("src/store/sqlite/x.c", '#include "store/memory/memory.h"\n', "may know an engine"),
    ("src/cli/x.c", '#include "output.h"\n', "not rooted"),
    ("src/new/x.c", "int x;\n", "no floor"),
    ("src/net/x.c", "int64_t x = crew->cfg->retention;\n", "may change"),
    ("src/dedup/x.c", "int64_t x = cfg->sweep_to;\n", "may change"),
    ("src/dedup/x.c", "int64_t x = cfg->legacy_months;\n", "may change"),
    ("src/dedup/x.c", "/* Whoever asks waits. */\n", "says whoever: name the thread"),
    ("src/dedup/x.c", 'const char *why = "it is made anew";\n', "says anew: name"),
    ("sql/x.sql", "SELECT datetime('now');\n", "asks the system for time"),
    ("sql/x.sql", "SELECT CURRENT_TIMESTAMP;\n", "asks the system for time"),
])
def test_a_breach_is_seen(folder, path, text, says):
    root = folder / "repo"
    for part in ("src/base", "src/store/sqlite/index", "src/dedup", "src/net", "src/cli", "src/new", "sql"):
        (root / part).mkdir(parents=True)
    (root / "src/config").mkdir()
    for table in (REPO / "src/config").glob("options*.[ci]*"):
        shutil.copy(table, root / "src/config")
    (root / "src/base/good.c").write_text("/* time(NULL) in a comment */ int64_t good = cfg->slots;\n")
    assert layers(root) == (0, "")
    (root / path).write_text(text)
    code, out = layers(root)
    assert code == 1 and says in out, out


CLOCKS = """# who uses which
figures src/net/shown.c
work src/net/slice.c

real src/net/peer.c  a peer
"""

CALLS = {"shown": "clock_figures_us()", "slice": "clock_work_us()", "peer": "clock_real_us() + sqlite3_sleep(1)"}


@pytest.mark.parametrize("name, text, clocks, says", [
    ("shown", "int64_t t = clock_figures_us();\n", CLOCKS, None),
    ("other", "int64_t t = clock_figures_ns ();\n", CLOCKS, "other.c:1: uses the figures clock"),
    ("peer", "int64_t t = clock_real_us() + clock_work_us();\n", CLOCKS, "peer.c:1: uses the work clock"),
    ("other", "int64_t t = clock_real_us();\n", CLOCKS, "uses the real clock"),
    ("other", "void f(void) { clock_cond_wait_real(c, m, 5); }\n", CLOCKS, "uses the real clock"),
    ("other", "void f(void) { thread_queue_wait_real(q, 5); }\n", CLOCKS, "uses the real clock"),
    ("other", "void f(void) { usleep(5); }\n", CLOCKS, "uses the real clock"),
    ("other", "void f(void) { uv_timer_start(&t, g, 5, 0); }\n", CLOCKS, "uses the real clock"),
    ("other", "void f(void) { poll(&p, 1, ms); }\n", CLOCKS, "uses the real clock"),
    ("other", "void f(void) { poll(&p, 1, -1); poll(&p, 1, 0); }\n", CLOCKS, None),
    ("other", "/* clock_real_us() in a comment */ void f(void) { k->ops->poll(k, 5); }\n", CLOCKS, None),
    ("other", "int64_t t = clock_mono_us();\n", CLOCKS, None),
    ("slice", "int64_t t = clock_mono_us();\n", CLOCKS, "scripts/clocks:3: src/net/slice.c no longer uses the work clock"),
    ("other", "", CLOCKS + "figures src/net/gone.c\n", "scripts/clocks:6: src/net/gone.c no longer uses"),
    ("other", "int64_t t = clock_real_us();\n", CLOCKS + "real src/net/other.c\n", "scripts/clocks:6: expected"),
    ("other", "void f(void) { pthread_create(&t, NULL, run, s); }\n", CLOCKS, "other.c:1: makes a thread that is no task"),
    ("other", "void f(void) { pthread_create(&t, NULL, run, s); }\n", CLOCKS + "thread src/net/other.c  a loop\n", None),
    ("other", "", CLOCKS + "thread src/net/other.c  a loop\n", "scripts/clocks:6: src/net/other.c no longer makes a thread"),
    ("other", "", CLOCKS + "thread src/net/other.c\n", "scripts/clocks:6: expected"),
    ("other", "", CLOCKS + "figure src/net/shown.c\n", "scripts/clocks:6: expected"),
])
def test_who_uses_which_clock(folder, name, text, clocks, says):
    (folder / "src/net").mkdir(parents=True)
    (folder / "scripts").mkdir()
    (folder / "scripts/clocks").write_text(clocks)
    for file, call in CALLS.items():
        (folder / f"src/net/{file}.c").write_text(f"int64_t t = {call};\n")
    (folder / f"src/net/{name}.c").write_text(text)
    code, out = layers(folder)
    assert (code, out) == (0, "") if says is None else code == 1 and says in out, out


def test_the_format_check_is_seen(folder):
    if not shutil.which("clang-format"):
        pytest.skip("no clang-format")
    shutil.copy(REPO / ".clang-format", folder)
    (folder / "bad.c").write_text("int  f( void ){return 1;}\n")
    done = subprocess.run(["clang-format", "--dry-run", "--Werror", str(folder / "bad.c")], capture_output=True)
    assert done.returncode != 0


def test_few_tests_wait_for_real_time():
    """A poll is until(), and what else must pass time is pause(), with its reason: both of conftest.py."""
    pauses, sleeps = [], set()
    for path in [*(REPO / "tests/e2e").glob("*.py"), *(REPO / "tests/integration").glob("*.py")]:
        text = path.read_text()
        pauses += re.findall(r"""(?:end_to_end\.|^ +)pause\(.*, "(.*)"\)$""", text, re.MULTILINE)
        if re.search(r"\btime\.sleep\(", text):
            sleeps.add(f"{path.parent.name}/{path.name}")
    assert sleeps == {"e2e/conftest.py", "e2e/standstill.py"}
    assert 15 <= len(pauses) <= 20, pauses
