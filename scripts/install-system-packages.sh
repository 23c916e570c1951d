#!/bin/sh
# The programs that some tests start: Debian's prometheus, chromium, redis and iproute2, where they are missing.
set -eu
missing=""
for pair in prometheus:prometheus promtool:prometheus chromium:chromium ip:iproute2 redis-server:redis-server unshare:util-linux; do
    if ! PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" >/dev/null; then
        missing="$missing ${pair##*:}"
    fi
done
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null; then
    echo "The tests need these programs, and there is no apt-get to install them with:$missing" >&2
    exit 1
fi
sudo=""
[ "$(id -u)" = 0 ] || sudo="sudo"
echo "Installing what the tests need:$missing"
# RUNLEVEL=1 keeps Debian from starting another Prometheus.
$sudo apt-get update -qq
# shellcheck disable=SC2086 # a list of words
$sudo env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $missing
