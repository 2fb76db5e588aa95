# Shared by the scripts of this folder; sourced, not run.
# shellcheck shell=bash
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
this=scripts/$(basename -- "$0")
readonly root this

say()  { printf '%s: %s\n' "$this" "$*"; }
fail() { printf '%s: error: %s\n' "$this" "$*" >&2; exit "${status:-1}"; }
step() { printf '\n== %s\n' "$*"; }

# The comment at the top of a script is its help.
usage() { awk 'NR > 1 && !/^#/ {exit} NR > 1 {sub(/^# ?/, ""); print}' "$0"; }

# wrong_option OPTION: leaves with status 2, as the program itself does.
wrong_option() { status=2 fail "unknown option '$1'; $this --help lists them"; }

# number OPTION VALUE: VALUE if it is a whole number above zero.
number() {
  [[ $2 =~ ^[1-9][0-9]*$ ]] || status=2 fail "$1 needs a whole number above 0; got '$2'"
  printf '%s' "$2"
}

# Cores that this process may use. nproc alone would count the threads that OMP_NUM_THREADS gives to one program.
cores() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc; }

# One compiler process a core, and at least 1.5 GiB of free memory for each. LOCKSTEP_JOBS overrides.
build_jobs() {
  local cores free
  cores=$(cores)
  free=$(awk '/MemAvailable/ {print int($2 / 1572864)}' /proc/meminfo 2>/dev/null || echo "$cores")
  (( free < cores )) && cores=$(( free > 0 ? free : 1 ))
  printf '%s' "${LOCKSTEP_JOBS:-$cores}"
}

# configure PRESET OPTION…: shows the table of what was found, or all of CMake's output where it failed.
configure() {
  local preset=$1 log; log=$(mktemp)
  if ! (cd "$root" && cmake --preset "$@") >"$log" 2>&1; then
    cat "$log" >&2; rm -f "$log"
    say "configuring the preset '$preset' failed; the reason stands above" >&2
    return 1
  fi
  sed -n '/^-- Lockstep /,$p' "$log"
  rm -f "$log"
}

# build PRESET TARGET…: does little where nothing changed.
build() {
  cmake --build "$root/build/$1" -j "$(build_jobs)" --target "${@:2}"
}

# venv DIR PACKAGE…: a Python environment with these packages, made once. Returns non-zero where it cannot be made.
venv() {
  local dir=$1; shift
  if [[ -x $dir/bin/python && -f $dir/.packages && $(cat "$dir/.packages") == "$*" ]]; then
    say "$dir is there with $*; skipped"
    return
  fi
  say "making $dir with $* (pip)"
  python3 -m venv "$dir" && "$dir/bin/python" -m pip install --quiet "$@" || return
  printf '%s\n' "$*" >"$dir/.packages"
}

# Open MPI refuses root unless told twice. Ranks may outnumber cores, and the program divides the cores itself.
mpi() {
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe --bind-to none "$@"
}
