#!/usr/bin/env bash
# Sees to the few things that pip cannot install: python3 with venv and headers, a C compiler, pkg-config and OpenSSL's
# headers (the last four build python-qpid-proton for the tests), and Chromium, in which the tests open pages. Installs
# what is missing with apt-get where it may, and otherwise says in one sentence what to install. Called by `make setup`
# with the Python to use.
set -euo pipefail
python=${1:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "Twinbus needs Python 3.11 or newer; '$python' is not. Name another with: make PYTHON=/path/to/python3" >&2
    exit 1
fi

# Only the distribution's own Python gets its venv module and headers from apt; any other brings them or lacks them.
prefix=$("$python" -c 'import sys; print(sys.base_prefix)')
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

missing=()
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=("python$version-venv")
"$python" -c 'import os, sysconfig; os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null ||
    missing+=("python$version-dev")
command -v cc >/dev/null || command -v gcc >/dev/null || missing+=(gcc libc6-dev)
command -v pkg-config >/dev/null || missing+=(pkg-config)
pkg-config --exists openssl 2>/dev/null || missing+=(libssl-dev)
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
    missing+=(chromium)
[ ${#missing[@]} -gt 0 ] || exit 0

if [[ $prefix != /usr && ${missing[*]} == *python* ]]; then
    echo "The Python at $prefix lacks its venv module or its headers (Python.h); install them, or name another" \
        "Python with: make PYTHON=/path/to/python3" >&2
    exit 1
fi
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    sudo=()
elif command -v apt-get >/dev/null && sudo -n true 2>/dev/null; then
    sudo=(sudo -n)
else
    echo "Please install these system packages first (Debian names): ${missing[*]}" >&2
    exit 1
fi
echo "Installing system packages: ${missing[*]}"
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
