#!/usr/bin/env bash
# Installs the programs of debian-packages.txt that are missing: on Debian, as root. Elsewhere it says which are missing
# and goes on, since the tests that need one then skip themselves and name it.
set -euo pipefail

list="$(dirname "$(readlink -f "$0")")/debian-packages.txt"
PATH="$PATH:/usr/sbin:/sbin"

missing=()
while read -r program package _; do
    case "$program" in '' | '#'*) continue ;; esac
    command -v "$program" > /dev/null || missing+=("$package")
done < "$list"

if [ "${#missing[@]}" -eq 0 ]; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get > /dev/null; then
    echo "Missing programs; the tests that need them will be skipped. On Debian, as root:" >&2
    echo "    apt-get install ${missing[*]}" >&2
    exit 0
fi
echo "Installing Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --yes --no-install-recommends "${missing[@]}" > /dev/null
