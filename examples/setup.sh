# Sourced by examples/run.sh and tests/run.sh: the packages they need, and how a build folder is
# set up. Expects `root` to hold the repository's folder.

# Debian's names. `build_packages` are enough for the library and the examples.
build_packages=(g++ meson ninja-build pkg-config libeigen3-dev libfmt-dev python3
                libcli11-dev nlohmann-json3-dev gnuplot-nox)
test_packages=(doctest-dev cmake clang libclang-rt-dev libomp-dev clang-format-14)

say() { printf '%s\n' "$*"; }

# install_packages NAME...: installs those that are missing; where it can't, says which are needed
# and goes on with what is there.
install_packages() {
  local missing=() name as_root=()
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "No apt here. Needed (by Debian's names): $*"
    return 0
  fi
  for name in "$@"; do
    case $(dpkg-query -W -f '${Status}' "$name" 2>/dev/null) in
      *' installed') ;;
      *) missing+=("$name") ;;
    esac
  done
  if [ ${#missing[@]} -eq 0 ]; then return 0; fi
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null || ! { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
      say "Not root and no sudo. Going on without: ${missing[*]}"
      return 0
    fi
    as_root=(sudo)
  fi
  say "Installing ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
  "${apt[@]}" update >/dev/null || say "apt-get update failed; trying with the lists that are there"
  if ! "${apt[@]}" install --no-install-recommends "${missing[@]}" >/dev/null; then
    # One unknown name makes apt refuse all of them.
    for name in "${missing[@]}"; do
      "${apt[@]}" install --no-install-recommends "$name" >/dev/null ||
        say "Could not install $name; going on without it"
    done
  fi
}

# configure DIR ARGS...: `meson setup`, from scratch whenever the arguments, the compiler or the
# place of the repository changed, else nothing (ninja itself notices changed build files).
configure() {
  local dir=$1 stamp
  shift
  stamp=$(printf '%s\n' "$root" "${CXX-}" "${CXXFLAGS-}" "${LDFLAGS-}" "$@")
  if [ -f "$dir/build.ninja" ] && [ "$(cat "$dir/setup-arguments" 2>/dev/null)" = "$stamp" ]; then
    return 0
  fi
  rm -rf "$dir"
  mkdir -p "$(dirname "$dir")"
  meson setup "$dir" "$root" -Db_colorout=auto "$@" && printf '%s\n' "$stamp" >"$dir/setup-arguments"
}

# The build that is tested most and that the consumers install: both libraries, for this machine.
configure_release() {
  configure "$root/build/release" -Dnative=true -Ddefault_library=both -Dunity=on -Dunity_size=10 \
    --prefix="$root/build/prefix" --libdir=lib -Dpkgconfig.relocatable=true
}
