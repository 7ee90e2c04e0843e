#!/usr/bin/env bash
# Makes a virtual environment and installs into it:   tools/python-venv.sh DIRECTORY PIP-ARGUMENT...
#
# Does nothing when the environment is already there and neither the arguments nor the projects' metadata changed.
# Debian splits part of Python's standard library (ensurepip) off into python3-venv. Without it a pip of the system
# does as well; with neither, python3-venv is installed if this is root on Debian, or else named.
set -euo pipefail

usage="usage: tools/python-venv.sh DIRECTORY PIP-ARGUMENT..."
directory="${1:?$usage}"
shift
root="$(dirname "$(dirname "$(readlink -f "$0")")")"

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.11 python3.12 python3.13 python3.14 python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "kproxy needs Python 3.11 or later, and found none (set PYTHON to name one)." >&2
    exit 1
}

has_module() { "$python" -c "import $1" 2> /dev/null; }

make_environment() {
    if ! has_module ensurepip && ! "$python" -m pip --python "$(command -v "$python")" --version > /dev/null 2>&1; then
        install_debian_venv
    fi
    local options=()
    if ! has_module ensurepip; then
        options+=(--without-pip)
    fi
    if [ -e "$stamp" ] && ! "$directory/bin/python" -c '' 2> /dev/null; then
        options+=(--clear) # ours, and its Python is gone
    fi
    "$python" -m venv "${options[@]}" "$directory"
}

install_debian_venv() {
    local package
    package="$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    if [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
        echo "Installing $package, the part of Python's standard library that Debian keeps apart"
        export DEBIAN_FRONTEND=noninteractive
        apt-get -qq update
        apt-get -qq install --yes --no-install-recommends "$package" > /dev/null
    fi
    if ! has_module ensurepip; then
        echo "This Python can neither make a virtual environment with pip in it, nor is pip installed beside it." >&2
        echo "On Debian, as root:  apt-get install $package    (or python3-pip)" >&2
        exit 1
    fi
}

run_pip() {
    if "$directory/bin/python" -c 'import pip' 2> /dev/null; then
        "$directory/bin/python" -m pip "$@"
    else
        "$python" -m pip --python "$directory/bin/python" "$@"
    fi
}

cd "$root"
python="$(find_python)"
stamp="$directory/installed-by-kproxy"
wanted="$({ "$python" --version; echo "$@"; cat pyproject.toml ./*/pyproject.toml plugins/*/pyproject.toml tools/*.txt; } | sha256sum)"
if [ -x "$directory/bin/python" ] && [ "$(cat "$stamp" 2> /dev/null)" = "$wanted" ]; then
    exit 0
fi
echo "Installing into $directory (the first time this takes a minute)"
make_environment
run_pip install --quiet --disable-pip-version-check "$@"
echo "$wanted" > "$stamp"
