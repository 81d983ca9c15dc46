"""The checks of scripts/test can see red."""
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


def test_the_format_check_is_seen(folder):
    if not shutil.which("clang-format"):
        pytest.skip("no clang-format")
    shutil.copy(REPO / ".clang-format", folder)
    (folder / "bad.c").write_text("int  f( void ){return 1;}\n")
    done = subprocess.run(["clang-format", "--dry-run", "--Werror", str(folder / "bad.c")], capture_output=True)
    assert done.returncode != 0
