#!/usr/bin/env bash
# Makes the project's virtual environment: ground.sh VENV EXTRAS
#
# Torch is never replaced where a usable one is there already; elsewhere the CPU build is
# installed, and a build that would bring gigabytes of device libraries is refused.
# Reads PYTHON (the interpreter) and TORCH_INSTALL (what pip is told in order to install torch).
set -euo pipefail

venv=$1
extras=$2
python=${PYTHON:-python3}
torch_install=${TORCH_INSTALL:-torch -c constraints.txt}

say() { printf '%s\n' "$*"; }
fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

usable_torch() { # INTERPRETER: does it have a torch that danaus can train with?
    "$1" - <<'PY' 2>/dev/null
import torch
import torch.distributed as dist

numbers = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
raise SystemExit(not (numbers >= (2, 9) and dist.is_available() and dist.is_gloo_available()))
PY
}

check_python() {
    command -v "$python" >/dev/null ||
        fail "$python was not found: danaus needs Python 3.11 or newer; name one with make PYTHON=..."
    "$python" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' ||
        fail "$("$python" --version) is too old: danaus needs Python 3.11 or newer;" \
            "name one with make PYTHON=..."
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python cannot make virtual environments: install its venv module" \
            "(on Debian and Ubuntu: apt install python3-venv)"
}

device_libraries() { # what pip's plan would bring besides torch itself
    "$venv/bin/python" - "$venv/torch.json" <<'PY'
import json
import sys

names = [each["metadata"]["name"] for each in json.load(open(sys.argv[1]))["install"]]
prefixes = ("nvidia", "cuda", "triton", "pytorch-triton", "rocm")
print(*sorted(name for name in names if name.lower().startswith(prefixes)))
PY
}

make_venv() {
    say "Setting up $venv ..."
    if usable_torch "$python"; then
        "$python" -m venv --clear --system-site-packages "$venv"
        usable_torch "$venv/bin/python" && return # unless it is inside a venv itself
    fi
    "$python" -m venv --clear "$venv"
}

install_torch() {
    usable_torch "$venv/bin/python" && {
        say "Using the torch that is there; the rest is a download of up to 80 MB."
        return
    }
    # Ask first: the same line brings a CPU build on one machine, and on another gigabytes.
    # shellcheck disable=SC2086  # several words by intention
    "$venv/bin/pip" install -qq --dry-run --report "$venv/torch.json" $torch_install ||
        fail "pip could not find torch (asked for: $torch_install)"
    [ -z "$(device_libraries)" ] ||
        fail "here pip would install a torch build with gigabytes of device libraries:" \
            "$(device_libraries). Take the CPU build instead: torch's install page, with CPU" \
            "chosen, shows the index to name in" \
            "make demo TORCH_INSTALL=\"torch==2.13.0 --index-url INDEX\";" \
            "or install the torch you want for $python first, and it is used as it is"
    say "Downloading about 270 MB, once; 190 MB of it is the CPU build of torch ..."
    local quiet=-qq
    [ -t 1 ] && quiet="" # a person sees the progress
    # shellcheck disable=SC2086
    "$venv/bin/pip" install $quiet $torch_install
}

check_python
# shellcheck disable=SC2015  # a broken one is made anew
[ -x "$venv/bin/python" ] && "$venv/bin/python" -c '' 2>/dev/null || make_venv
install_torch
"$venv/bin/pip" install -qq --editable ".[$extras]" -c constraints.txt
