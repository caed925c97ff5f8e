#!/usr/bin/env bash
# Installs what is missing, builds softtape and its examples (release, for this machine) under
# build/ and runs the main one, `starvation`, into build/out/starvation.
#
#   examples/run.sh [--no-install] [arguments for starvation]
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

build_root=$root/build
build=$build_root/examples
log=$build_root/examples.log
mkdir -p "$build_root"
if ! { configure "$build" -Dnative=true -Dtests=false -Dexamples=true &&
       meson compile -C "$build"; } >"$log" 2>&1; then
  tail -n 40 "$log"
  say "The build failed; the whole log is $log"
  exit 1
fi

# A folder of its own, replaced at every run, unless the arguments name another.
case " ${arguments[*]-} " in
  *' --out'*) ;;
  *) arguments=(--out "$build_root/out/starvation" --force "${arguments[@]}") ;;
esac
exec "$build/examples/starvation" "${arguments[@]}"
