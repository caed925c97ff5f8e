#!/usr/bin/env bash
# Builds and runs the program of this folder against softtape, in every way a user may take it.
#
#   tests/consumer/run.sh BUILD TALLY
#
# BUILD/release is installed first: both libraries, compiled with -Dnative=true, while the program
# is compiled for any machine. That is the mix of -march flags that has to work. Each way adds a
# line `PASSED FAILED` to the file TALLY. Called by tests/run.sh.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
source "$root/examples/setup.sh"
build=$1
tally=$2
work=$build/consumer
rm -rf "$work"
mkdir -p "$work"

# way NAME FUNCTION ARGS...: runs the function in a fresh folder; any command that fails in it fails
# it as a whole.
way() {
  local name=$1 log=$work/$1.log code
  shift
  mkdir -p "$work/$name"
  # Neither this nor a call of `way` may stand in a condition: `set -e` would mean nothing inside.
  (set -e; cd "$work/$name"; "$@") >"$log" 2>&1
  code=$?
  if [ $code -eq 0 ]; then
    say "  ok      consumer: $name"
    say 1 0 >>"$tally"
  else
    say "  FAILED  consumer: $name"
    tail -n 30 "$log"
    say 0 1 >>"$tally"
  fi
  return $code
}

install_prefixes() {
  configure_release
  meson compile -C "$build/release" softtape:shared_library softtape:static_library
  rm -rf "$build/prefix"
  meson install -C "$build/release" --no-rebuild
  # Moving the tree must not matter, and each kind is found alone.
  cp -a "$build/prefix" "$work/shared"
  rm "$work"/shared/lib/libsofttape.a
  cp -a "$build/prefix" "$work/static"
  rm "$work"/static/lib/libsofttape.so*
}

# with_pkg_config PREFIX [--static]
with_pkg_config() {
  local prefix=$1 flags
  shift
  flags=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config "$@" --cflags --libs softtape)
  say "flags: $flags"
  # shellcheck disable=SC2086  # the flags are words
  "${CXX:-g++}" -std=c++20 -O2 "$here/main.cpp" -o consumer $flags
  LD_LIBRARY_PATH=$prefix/lib ./consumer
}

with_cmake() {
  local prefix=$1
  shift
  cmake -G Ninja -S "$here" -B . -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" "$@"
  cmake --build .
  ./consumer
}

# A project with softtape inside, as a shared and as a static library, on OpenMP's threads;
# unoptimised, since only the plumbing is in question.
with_subproject() {
  mkdir -p project/subprojects
  cp "$here/meson.build" "$here/main.cpp" project
  ln -sfn "$root" project/subprojects/softtape
  meson setup built project --wrap-mode=nofallback --force-fallback-for=softtape -Dbuildtype=plain \
    -Ddefault_library=both -Dsofttape:openmp=enabled -Dunity=subprojects -Dunity_size=10
  meson compile -C built
  ldd built/consumer | grep libsofttape
  ./built/consumer
  if ldd built/consumer_static | grep libsofttape; then return 1; fi
  ./built/consumer_static
}

# Flags for this machine in the library alone are refused.
with_native_subproject() {
  mkdir -p project/subprojects
  cp "$here/meson.build" "$here/main.cpp" project
  ln -sfn "$root" project/subprojects/softtape
  if meson setup built project --force-fallback-for=softtape -Dsofttape:native=true; then
    say "native=true was accepted in a subproject"
    return 1
  fi
  grep -q 'native=true would reach the library alone' built/meson-logs/meson-log.txt
}

way install install_prefixes
installed=$?
if [ $installed -eq 0 ]; then
  way pkg-config-shared with_pkg_config "$work/shared"
  way pkg-config-static with_pkg_config "$work/static" --static
  way cmake-shared with_cmake "$work/shared"
  way cmake-static with_cmake "$work/static" -Dsofttape_USE_STATIC_LIBS=ON
fi
way subproject with_subproject
way subproject-native-refused with_native_subproject
