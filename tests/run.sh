#!/usr/bin/env bash
# Installs what is missing, builds under build/, runs every suite and ends with one line
# `N passed, N failed`: doctest cases, and one for each check that is not a doctest program.
usage='Usage: tests/run.sh [--no-install] [SUITE...]

Suites (all but the last when none is named):
  floors    includes run downwards only
  format    clang-format 14 has nothing to change
  release   g++, optimised for this machine: every test program
  consumer  programs that use the library installed and as a subproject
  asan      clang++, no -march, warnings are errors, with the address, leak and undefined-behaviour
            sanitizers: every test program but whole trainings
  fuzz      libFuzzer on the readers of files, a few seconds for each
  tsan      clang++ with the thread sanitizer: test cases with [thread] in their name
  laws      the whole main experiment, `starvation --full`: only when named, it takes minutes

All of them take 10 to 15 minutes on two cores the first time, less with ccache. Logs are
build/NAME.log. Exit code 0 when something passed and nothing failed.'
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
source "$root/examples/setup.sh"

all_suites=(floors format release consumer asan fuzz tsan laws)
install=true
chosen=()
for argument in "$@"; do
  case $argument in
    --no-install) install=false ;;
    -h | --help) say "$usage"; exit 0 ;;
    *)
      if [[ " ${all_suites[*]} " != *" $argument "* ]]; then
        printf "Unknown suite '%s'\n\n%s\n" "$argument" "$usage" >&2
        exit 2
      fi
      chosen+=("$argument")
      ;;
  esac
done
named=true
if [ ${#chosen[@]} -eq 0 ]; then
  named=false
  chosen=("${all_suites[@]:0:${#all_suites[@]}-1}")  # laws only when named
fi

build=$root/build
mkdir -p "$build"
tally=$build/tally  # one line `PASSED FAILED` per program or check
: >"$tally"
if $install; then install_packages "${build_packages[@]}" "${test_packages[@]}"; fi

# Deep graphs must live in the usual stack, whatever this shell was given.
ulimit -S -s 8192 || say "Could not set the stack limit to 8 MiB"

passed() { say "  ok      $1"; say 1 0 >>"$tally"; }
failed() { say "  FAILED  $1"; say 0 1 >>"$tally"; }

# check NAME COMMAND...: one check that passes when the command does; its output is shown when not.
check() {
  local name=$1 log
  shift
  log=$build/$(printf '%s' "$name" | tr -c 'a-zA-Z0-9' -).log
  if "$@" >"$log" 2>&1; then passed "$name"; else failed "$name"; tail -n 60 "$log"; fi
}

# missing TOOL SUITE: true where the tool is absent.
missing() {
  if command -v "$1" >/dev/null; then return 1; fi
  leave_out "$2" "$1"
}

# leave_out SUITE NEED: a suite that was asked for by name, or by continuous integration (CI is set),
# fails; otherwise it is not run, and said so.
leave_out() {
  left_out=true
  if $named || [ -n "${CI-}" ]; then failed "$1: needs $2"; else say "  not run: needs $2"; fi
}

# build_and_run NAME COMMAND...: COMMAND sets up build/NAME; builds it (or the programs that
# `build_targets` names) and runs its test programs with what `run_arguments` holds. A build that
# fails counts as one failure.
build_and_run() {
  local name=$1
  shift
  if ! { "$@" && ninja -C "$build/$name" "${build_targets[@]}"; } >"$build/$name.log" 2>&1; then
    failed "$name: build"
    grep -E -A 5 'error|ERROR|FAILED|undefined reference' "$build/$name.log" | head -n 60
    return 1
  fi
  say "  built in $((SECONDS - started)) s"
  python3 tests/support/run_suites.py "$build/$name" --tally "$tally" "${run_arguments[@]}"
  case $? in
    0 | 3) ;;  # 3: something failed, and is in the tally
    *) failed "$name: the test programs could not be run" ;;
  esac
}

run_floors() {
  check "floors: the check finds planted includes" python3 tests/check_floors.py --self-test
  check "floors: includes run downwards" python3 tests/check_floors.py
}

run_format() {
  local tool
  tool=$(command -v clang-format-14 || command -v clang-format)
  if [ -z "$tool" ]; then missing clang-format-14 format; return; fi
  check "format: $("$tool" --version | grep -o 'version [0-9]*')" format_check "$tool"
}

format_check() {
  local files
  mapfile -t files < <(
    if git rev-parse --git-dir >/dev/null 2>&1; then
      git ls-files --cached --others --exclude-standard src include tests examples
    else
      find src include tests examples -type f
    fi | grep -E '\.(cpp|hpp)$' | while read -r file; do [ ! -f "$file" ] || say "$file"; done)
  [ ${#files[@]} -gt 0 ] && "$1" --dry-run -Werror "${files[@]}"
}

run_release() {
  build_and_run release configure_release
}

run_consumer() {
  tests/consumer/run.sh "$build" "$tally"
}

# Ten files at a time: most of what a compiler reads is headers.
unity=(-Dunity=on -Dunity_size=10)

# One build is all that clang is asked: its warnings, code for any processor, and what the
# sanitizers see. (g++ takes five times as long over the instrumented tests.)
configure_asan() {
  CXX=clang++ configure "$build/asan" "${unity[@]}" -Dwerror=true \
    -Dbuildtype=debugoptimized -Doptimization=1 -Ddefault_library=static -Dexamples=false \
    -Db_sanitize=address,undefined -Db_lundef=false \
    -Dcpp_args='-gline-tables-only -fno-omit-frame-pointer -fno-sanitize-recover=all'
}

run_asan() {
  if missing clang++ asan; then return; fi
  ASAN_OPTIONS=detect_leaks=1:strict_init_order=1 UBSAN_OPTIONS=print_stacktrace=1 \
    build_and_run asan configure_asan
}

# Inputs are the same in every run; longer runs: build/asan/tests/NAME_fuzz -help=1.
run_fuzz() {
  local name
  if missing clang++ fuzz; then return; fi
  if ! configure_asan >"$build/fuzz.log" 2>&1; then
    failed "fuzz: set-up"
  elif ! grep -q '^build fuzz:' "$build/asan/build.ninja"; then
    leave_out fuzz "a clang++ that links -fsanitize=fuzzer"
  elif ! meson compile -C "$build/asan" fuzz >"$build/fuzz.log" 2>&1; then
    failed "fuzz: build"
    grep -E -A 5 'error|FAILED' "$build/fuzz.log" | head -n 60
  else
    for name in checkpoint npy safetensors; do
      check "fuzz: $name, 20000 inputs" "$build/asan/tests/${name}_fuzz" -runs=20000 -seed=1 \
        -max_len=4096 -malloc_limit_mb=64 -artifact_prefix="$build/fuzz-$name-"
    done
  fi
}

configure_tsan() {
  CXX=clang++ configure "$build/tsan" "${unity[@]}" -Dbuildtype=debugoptimized -Doptimization=1 \
    -Ddefault_library=static -Dexamples=false -Db_sanitize=thread -Db_lundef=false \
    -Dcpp_args=-gline-tables-only
}

run_tsan() {
  if missing clang++ tsan; then return; fi
  # The programs where threads meet: the pool, the graph, kernels and the training loop.
  local build_targets=(tests/{base,graph,cases,attention,train}_test)
  local run_arguments=(--filter '*[thread]*' --built)
  # Only what was compiled here is instrumented; libfmt is not.
  TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1 build_and_run tsan configure_tsan
}

# Every law with all its seeds; the release suite holds them with a few.
run_laws() {
  configure_release >"$build/release.log" 2>&1 && meson compile -C "$build/release" starvation \
    >>"$build/release.log" 2>&1 || { failed "laws: build"; return; }
  check "laws: starvation --full" "$build/release/examples/starvation" --full --no-report \
    --no-progress --force --only init,train --out "$build/laws"
}

build_targets=()
run_arguments=()
for suite in "${chosen[@]}"; do
  say "$suite"
  started=$SECONDS
  left_out=false
  counted=$(wc -l <"$tally")
  "run_$suite"
  if ! $left_out && [ "$(wc -l <"$tally")" -eq "$counted" ]; then failed "$suite: nothing ran"; fi
  say "  $((SECONDS - started)) s"
done

read -r passes failures < <(awk '{ p += $1; f += $2 } END { print p + 0, f + 0 }' "$tally")
if [ "$passes" -eq 0 ] && [ "$failures" -eq 0 ]; then
  say "No test ran."
  failures=1
fi
say "$passes passed, $failures failed"
[ "$failures" -eq 0 ]
