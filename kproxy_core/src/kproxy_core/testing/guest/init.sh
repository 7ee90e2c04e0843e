#!/bin/sh
# The first process of a guest. Its root is the host's, read-only; it makes a root of its own above that, in which everything can
# be written and nothing reaches the host, runs the command, and leaves the exit status in the mailbox.
# The kernel gives it `mailbox`, a folder that it shares with the host, by the command line.
set -u
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

# Without /proc the end of this process is the end, a kernel's panic.
power_off() {
    [ -w /proc/sysrq-trigger ] && echo o > /proc/sysrq-trigger && sleep 60
    exit 1
}

# A program that is setuid to root there is setuid to somebody else here, if this is a guest of an ordinary user: the mailbox has a
# mount without that bit, and the new root takes no notice of it.
mount() { "$mailbox/mount" "$@"; }

must() {
    "$@" && return
    echo "guest: cannot: $*"
    power_off
}

own_root() {
    stage="$mailbox/stage"
    release="$(uname -r)"
    must mount -t proc proc /proc
    must insmod "/usr/lib/uml/modules/$release/kernel/fs/overlayfs/overlay.ko"
    must mount -t tmpfs -o mode=755 tmpfs "$stage"
    root="$stage/root"
    must mkdir "$stage/upper" "$stage/work" "$root"
    must mount -t overlay -o "nosuid,lowerdir=/,upperdir=$stage/upper,workdir=$stage/work" overlay "$root"
    must mkdir -p "$root/lib/modules" "$root/mnt"
    must ln -sfn "/usr/lib/uml/modules/$release" "$root/lib/modules/$release"
    while read -r folder; do
        must mount -t hostfs -o "$folder" none "$root$folder"
    done < "$mailbox/writable"
    must cd "$root"
    must pivot_root . mnt
}

file_systems() {
    must umount -l /mnt
    must mount -t proc proc /proc
    must mount -t sysfs sysfs /sys
    must mount -t devtmpfs devtmpfs /dev
    must mkdir -p /dev/pts /dev/shm
    must mount -t devpts devpts /dev/pts
    must mount -t tmpfs tmpfs /dev/shm
    must mount -t tmpfs -o mode=755 tmpfs /run
    must mkdir -p /run/lock /run/netns
    must mount -t cgroup2 cgroup2 /sys/fs/cgroup
    must mount -t bpf bpf /sys/fs/bpf
    must ip link set lo up
    hostname guest
}

# The command writes into pipes, so that what it starts sees no terminal; each is copied to a serial line until its last writer
# has gone. The command and all that it starts are in a process namespace that ends with it, so that this always comes.
run() {
    for line in 1 2; do
        must stty -F "/dev/ttyS$line" raw -echo
        must mkfifo "/run/stream$line"
        cat "/run/stream$line" > "/dev/ttyS$line" &
    done
    # shellcheck disable=SC2016
    unshare --pid --fork --mount-proc sh -c 'sh "$1"; exit $?' sh "$mailbox/command" \
        < /dev/null > /run/stream1 2> /run/stream2
    status=$?
    wait
    echo "$status" > "$mailbox/status"
}

if [ "${1-}" != again ]; then
    own_root
    exec chroot . sh "$0" again
fi
file_systems
run
power_off
