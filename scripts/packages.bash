# Debian's packages, for the scripts that need some. They set, before they call it: install (0: none are installed).

is_installed() {
    dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'
}

# install_packages PACKAGE ...: installs those that are missing, as root or by sudo. "a|b" is the first of them that this
# release of Debian has.
install_packages() {
    local wanted one choice missing=() chosen=() as_root=()
    for wanted in "$@"; do
        for one in ${wanted//|/ }; do
            ! is_installed "$one" || continue 2
        done
        missing+=("$wanted")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$install" = 0 ]; then
        echo "$0: missing packages: ${missing[*]}" >&2
        return 1
    fi
    command -v apt-get >/dev/null || { echo "$0: no apt-get here; install: ${missing[*]}" >&2; return 1; }
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { echo "$0: run this as root, or install: ${missing[*]}" >&2; return 1; }
        as_root=(sudo)
    fi
    echo "Installing ${missing[*]} ..."
    "${as_root[@]}" apt-get update -qq || return 1
    for wanted in "${missing[@]}"; do
        choice=${wanted%%|*}
        for one in ${wanted//|/ }; do
            [ -z "$(apt-cache madison "$one")" ] || { choice=$one; break; }
        done
        chosen+=("$choice")
    done
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${chosen[@]}" >/dev/null
}
