"""The recipe of the image, without an engine: its lists of packages against configure.ac and the binary, and the lines
that change the configuration, run for themselves."""
import json
import os
import re
import shlex
import shutil
import subprocess

import pytest

from conftest import BUILD, REPO, UNSEEN, run

RECIPE = (REPO / "packaging/container/Containerfile").read_text()
# Debian's names of what configure.ac asks pkg-config for, and of the libraries that then are linked. Debian 12 has no
# llhttp, but what that came from, which configure takes then.
DEBIAN = {"sqlite3": "libsqlite3", "libuv": "libuv1", "libxxhash": "libxxhash", "libzstd": "libzstd", "inih": "libinih",
          "zlib": "zlib1g", "libllhttp": "libhttp-parser", "jansson": "libjansson", "libcrypt": "libcrypt",
          "hiredis": "libhiredis", "libnghttp2": "libnghttp2", "openssl": "libssl", "libcurl": "libcurl4-openssl",
          "rdkafka": "librdkafka"}
SONAMES = {"libsqlite3.so.0": "libsqlite3-0", "libuv.so.1": "libuv1", "libxxhash.so.0": "libxxhash0",
           "libzstd.so.1": "libzstd1", "libinih.so.1": "libinih1", "libz.so.1": "zlib1g",
           "libhttp_parser.so.2.9": "libhttp-parser2.9", "libjansson.so.4": "libjansson4",
           "libhiredis.so.0.14": "libhiredis0.14", "libcrypt.so.1": "libcrypt1",
           "libnghttp2.so.14": "libnghttp2-14", "libssl.so.3": "libssl3", "libcrypto.so.3": "libssl3",
           "libcurl.so.4": "libcurl4", "librdkafka.so.1": "librdkafka1", "librados.so.2": "librados2"}


def stages():
    """Each stage's instructions: (word, rest), joined where a line goes on."""
    text = re.sub(r"\\\n\s*", " ", "".join(line + "\n" for line in RECIPE.splitlines() if not line.startswith("#")))
    parts = re.split(r"^FROM .*$", text, flags=re.M)[1:]
    return [[line.split(" ", 1) for line in part.splitlines() if line] for part in parts]


BUILD_STAGE, LAST_STAGE = stages()


def steps(stage, word):
    return [rest for name, rest in stage if name == word]


def installed(stage):
    command = next(rest for rest in steps(stage, "RUN") if "apt-get install" in rest)
    words = shlex.split(command.partition("apt-get install")[2].partition("&&")[0])
    return {re.sub(r"^\$\{RADOS:\+(.*)\}$", r"\1", word) for word in words if not word.startswith("-")}


def asked_for():
    """What configure.ac wants of every build, and of one with hiredis."""
    text = (REPO / "configure.ac").read_text()
    return {m for m in re.findall(r"PKG_CHECK_MODULES\(\[\w+\], \[(\w+)", text) if m != "cmocka"}


def test_the_build_stage_has_what_configure_asks_for():
    assert asked_for() == set(DEBIAN)
    assert {f"{name}-dev" for name in DEBIAN.values()} <= installed(BUILD_STAGE)
    assert "librados-dev" in installed(BUILD_STAGE)  # which pkg-config doesn't know


def linked_with(file):
    shown = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", shown)


def test_the_image_has_what_the_binary_is_linked_with():
    needed = linked_with(UNSEEN)
    assert not {"librdkafka.so.1", "librados.so.2"} & set(needed)  # those are the modules'
    for module in BUILD.glob("unseen_*.so"):
        needed += linked_with(module)
    system = ("libc.", "libm.", "libgcc_s.", "ld-linux", "libasan.", "libubsan.", "libtsan.")
    libraries = [name for name in needed if not name.startswith(system)]
    assert libraries and {SONAMES[name] for name in libraries} <= installed(LAST_STAGE)
    assert set(SONAMES.values()) <= installed(LAST_STAGE)


def configure_lines():
    return {"image": next(rest for rest in steps(BUILD_STAGE, "RUN") if "/configure" in rest),
            "deb": (REPO / "packaging/debian/rules").read_text(), "rpm": (REPO / "packaging/rpm/unseen.spec").read_text()}


@pytest.mark.parametrize("kind", configure_lines())
@pytest.mark.parametrize("library", ["hiredis", "openssl", "nghttp2", "rdkafka", "rados"])
def test_packages_are_not_built_without(kind, library):
    assert f"--with-{library}=yes" in configure_lines()[kind]


@pytest.mark.slow
@pytest.mark.skipif(not (REPO / "configure").exists(), reason="configure was not made in the source folder")
@pytest.mark.parametrize("library", ["hiredis", "openssl", "nghttp2", "rdkafka"])
@pytest.mark.parametrize("asked, code", [("yes", 1), ("no", 0)])
def test_configure_fails_without_a_library_that_is_asked_for(folder, configure_cache, library, asked, code):
    """pkg-config finds everything but that."""
    tool = folder / "pkg-config"
    tool.write_text(f'#!/bin/sh\ncase "$*" in *{library}*) exit 1 ;; esac\nexec /usr/bin/pkg-config "$@"\n')
    tool.chmod(0o755)
    done = subprocess.run([REPO / "configure", "-q", "--no-create", f"--cache-file={shutil.copy(configure_cache, folder)}", f"PKG_CONFIG={tool}",
                           f"--with-{library}={asked}"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert (library in done.stderr) == (code == 1)


def test_it_listens_for_others_and_wants_a_password(folder):
    (folder / "image/etc/unseen").mkdir(parents=True)
    shutil.copy(REPO / "etc/unseen.conf", folder / "image/etc/unseen")
    file = folder / "image/etc/unseen/unseen.conf"
    script = "packaging/container/listen-outside"
    assert f"/src/{script} /image/etc/unseen/unseen.conf" in steps(BUILD_STAGE, "RUN")
    subprocess.run([REPO / script, file], check=True)
    refused = run("check-config", file, check=False)
    assert refused.returncode == 1 and b"set requirepass" in refused.stderr
    environment = {**os.environ, "UNSEEN_REQUIREPASS": "hush", "UNSEEN_HTTP": "none", "UNSEEN_GRPC": "none"}
    options = json.loads(run("check-config", file, "--json", env=environment).stdout)["options"]
    assert options["listen"]["value"] == "0.0.0.0:7979" and options["listen"]["from"] == "file"
    assert options["http"]["value"] == "none" and options["http"]["from"] == "environment"
    changed = {name for name, option in options.items() if option["changed"]}
    assert changed == {"listen", "http", "grpc", "requirepass", "staging_memory"}


def test_it_is_checked_by_a_subcommand_that_there_is():
    (check,) = steps(LAST_STAGE, "HEALTHCHECK")
    assert check.endswith('CMD ["unseen", "ping"]')
    assert run("help", "ping").returncode == 0
    assert not {"curl", "wget"} & installed(LAST_STAGE)
