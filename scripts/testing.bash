# What scripts/test and scripts/test-integration share. They set, before they source it: root, out (a
# folder of what they build), install (0: no packages are installed). The last line of both is "N passed, N failed".

passed=0 failed=0 skipped=0
began=$SECONDS
times=()

# A step's name is printed before it runs, its duration after.
step() {
    printf '\n== %s\n' "$*"
    step_name=$* step_began=$SECONDS
}
step_end() {
    times+=("$(printf '%5d s  %s' $((SECONDS - step_began)) "$step_name")")
}
good() { passed=$((passed + 1)); }
bad() {
    failed=$((failed + 1))
    echo "FAILED: $*"
}
finish() {
    printf '\nHow long it took:\n'
    printf '%s\n' "${times[@]}"
    printf '%5d s  in all\n\n' $((SECONDS - began))
    [ "$skipped" -eq 0 ] || echo "$skipped skipped (each names its reason above)"
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}
trap 'echo; echo "interrupted"; rm -rf ${fast:+"$fast"}; exit 130' INT TERM

. "$root/scripts/packages.bash"

# What is downloaded or takes long to build, and changes with a pin alone, is kept for later runs.
downloads=$root/build-downloads

# once FOLDER KEY COMMAND ...: the command fills the folder, which is emptied first; unless it has done so before, with that
# key. Where it has failed or was killed it begins anew.
once() {
    local folder=$1 key=$2
    shift 2
    [ "$(cat "$folder/.done" 2>/dev/null)" != "$key" ] || return 0
    rm -rf "$folder" && mkdir -p "$folder" && "$@" && printf '%s\n' "$key" >"$folder/.done"
}
# A key: what the files hold, and the words before "--".
key_of() {
    local words=()
    while [ "$1" != -- ]; do words+=("$1"); shift; done
    shift
    echo "${words[*]}" "$(cat "$@" | sha256sum)"
}

# Without Node of one's own, Debian's is installed.
install_packages_and_node() {
    local packages=("$@")
    command -v node >/dev/null && command -v npm >/dev/null || packages+=(nodejs npm)
    install_packages "${packages[@]}"
}

npm_once() {
    once "$1/node_modules" "$(key_of "$(node -v)" -- "$1/package.json" "$1/package-lock.json")" \
        npm ci --prefix "$1" --no-audit --no-fund --loglevel=error
}

# A project on Node, pinned by its lock file: install_node_clients FOLDER. Debian 12's own Node is older than clients
# ask for: then a newer one comes from the registry too, for these tests alone.
install_node_clients() {
    local runtime=$root/tests/e2e/node/runtime
    npm_once "$1" || return 1
    if [ "$(node -p 'parseInt(process.versions.node)')" -lt 20 ]; then
        npm_once "$runtime" || return 1
        UNSEEN_NODE=$(find "$runtime/node_modules" -path '*/bin/node' -type f | head -n 1)
        export UNSEEN_NODE
    fi
}

# The sanitizers of Debian 12 can't place their shadow memory when the kernel randomises more bits than these.
fixed_addresses=()
if [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)" -gt 28 ] && setarch -R true 2>/dev/null; then
    fixed_addresses=(setarch -R)
fi

# Tests that take this many seconds hang, and have failed.
pytest_patience=1500

# Is there room for so many MiB in /dev/shm, and twice as much memory? In a container it may be small, or run no program.
has_memory() {
    ! grep -qE '^[^ ]+ /dev/shm [^ ]+ [^ ]*noexec' /proc/mounts &&
        [ "$(df --output=avail -B1M /dev/shm 2>/dev/null | tail -n 1)" -ge "$1" ] 2>/dev/null &&
        [ "$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)" -ge $((2 * $1)) ]
}

# Runs pytest against the binary of a build folder: run_pytest FOLDER [options of pytest] TESTS. With
# pytest_side_by_side=N, N files of tests at a time, or N groups of them where conftest.py makes groups: most wait for a
# server most of the time.
pytest_side_by_side=1 pytest_dist=loadfile
pytest_fast=0 # MiB that tests may need in memory, where their folders then are; a disk syncs for each of many servers
fast=''
pytest_none=0 # 5, pytest's code for "no tests collected", where that is no failure
run_pytest() {
    local folder=$out/$1
    shift
    [ "$pytest_side_by_side" -eq 1 ] || set -- -n "$pytest_side_by_side" --dist "$pytest_dist" "$@"
    local base=$folder/pytest
    if [ "$pytest_fast" -gt 0 ] && has_memory "$pytest_fast"; then
        # A short name: some errors that name files are cut at 320 bytes.
        fast=$(mktemp -d /dev/shm/uXXX) && base=$fast/pytest
    fi
    # What pytest makes of the tests' sources is kept, for each process and each run of it needs all of them.
    UNSEEN_BUILD=$folder UNSEEN_DISK=${TMPDIR:-/tmp} TMPDIR=${fast:-${TMPDIR:-/tmp}} \
        PYTHONDONTWRITEBYTECODE='' PYTHONPYCACHEPREFIX=$out/pycache \
        timeout --foreground --verbose -k 60 -s INT "$pytest_patience" "${fixed_addresses[@]}" \
        /usr/bin/python3 -m pytest -q -rsf --tb=short -p no:cacheprovider --basetemp="$base" \
        --junitxml="$folder/pytest.xml" "$@"
    local code=$? counts
    rm -rf "$folder/pytest" ${fast:+"$fast"}
    fast=''
    counts=$(/usr/bin/python3 - "$folder/pytest.xml" <<'PY'
import sys
import xml.etree.ElementTree as xml
suites = list(xml.parse(sys.argv[1]).getroot().iter("testsuite"))
count = lambda name: sum(int(s.get(name, 0)) for s in suites)
bad = count("failures") + count("errors")
# What this machine does not allow is skipped; a part that scripts/packages.bash should have installed has failed.
missing = sum(not s.get("message", "").startswith("not here: ") for suite in suites for s in suite.iter("skipped"))
print(count("tests") - bad - count("skipped"), bad + missing, count("skipped") - missing)
PY
    ) || counts="0 1 0"
    local p f s
    read -r p f s <<<"$counts"
    # Anything but 0 and 1 means that pytest itself gave up, or that no tests were collected.
    [ "$code" -le 1 ] || [ "$code" -eq "$pytest_none" ] || f=$((f + 1))
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    rm -f "$folder/pytest.xml"
}
