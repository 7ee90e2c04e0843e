#!/usr/bin/env bash
# Installs what is missing of debian-packages.txt: on Debian, as root. Elsewhere it says what is missing and goes on, since
# the tests that need it then skip themselves and name it.
set -euo pipefail

list="$(dirname "$(readlink -f "$0")")/debian-packages.txt"
PATH="$PATH:/usr/sbin:/sbin"

missing=()
while read -r program package _; do
    case "$program" in '' | '#'*) continue ;; esac
    command -v "$program" > /dev/null || [ -e "$program" ] || missing+=("$package")
done < "$list"

if [ "${#missing[@]}" -eq 0 ]; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get > /dev/null; then
    echo "Missing Debian packages; the tests that need them will be skipped. On Debian, as root:" >&2
    echo "    apt-get install ${missing[*]}" >&2
    exit 0
fi
echo "Installing Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --yes --no-install-recommends "${missing[@]}" > /dev/null
