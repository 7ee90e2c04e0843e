#!/usr/bin/env bash
# Runs a command as root: as it is for root, else as root of a user namespace of its own, if the kernel allows that. What the
# tests do as root concerns network namespaces that they make themselves, so this is root enough.
set -eu

if [ "$(id -u)" -ne 0 ] && unshare --user --map-root-user --mount true 2> /dev/null; then
    exec unshare --user --map-root-user --mount -- "$@"
fi
exec "$@"
