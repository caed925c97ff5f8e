#!/usr/bin/env bash
# Installs what is missing, builds softtape and its examples (release, for this machine) under
# build/ and runs the main example.
#
#   examples/run.sh [--no-install] [arguments for the main example]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/examples/setup.sh"

install=true
arguments=()
for argument in "$@"; do
  case $argument in
    --no-install) install=false ;;
    *) arguments+=("$argument") ;;
  esac
done

if $install; then install_packages "${build_packages[@]}"; fi

build=$root/build/examples
out=$root/build/out
log=$root/build/examples.log
mkdir -p "$out"
if ! { configure "$build" -Dnative=true -Dtests=false -Dexamples=true &&
       meson compile -C "$build"; } >"$log" 2>&1; then
  tail -n 40 "$log"
  say "The build failed; the whole log is $log"
  exit 1
fi

# The main example takes the arguments and says itself where its report is.
main=$build/examples/starvation
if [ -x "$main" ]; then
  cd "$out"
  exec "$main" "${arguments[@]}"
fi

# Without it, every example runs once.
found=false
for program in "$build"/examples/*; do
  if [ -f "$program" ] && [ -x "$program" ]; then
    found=true
    say "== $(basename "$program")"
    (cd "$out" && "$program")
  fi
done
if ! $found; then say "The library is built; there is no example program to run."; fi
