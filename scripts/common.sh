# shellcheck shell=bash
# Shared by the scripts in this folder; sourced, not run.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
this=scripts/$(basename -- "$0")
readonly root this

say()  { printf '%s: %s\n' "$this" "$*"; }
fail() { printf '%s: error: %s\n' "$this" "$*" >&2; exit "${status:-1}"; }
step() { printf '\n== %s\n' "$*"; }

# Prints the comment at the top of the script, which is its help.
usage() { awk 'NR > 1 && !/^#/ {exit} NR > 1 {sub(/^# ?/, ""); print}' "$0"; }

# wrong_option OPTION: exits with status 2, as the program itself does.
wrong_option() { status=2 fail "unknown option '$1'; $this --help lists them"; }

# number OPTION VALUE: VALUE if it is a whole number above zero.
number() {
  [[ $2 =~ ^[1-9][0-9]*$ ]] || status=2 fail "$1: expected a whole number above 0, got '$2'"
  printf '%s' "$2"
}

# Cores that this process may use. nproc alone would count the threads that OMP_NUM_THREADS gives to
# one program.
cores() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc; }

# One compiler process per core, with at least 2 GiB of free memory for each. LOCKSTEP_JOBS
# overrides it.
build_jobs() {
  local cores free
  cores=$(cores)
  free=$(awk '/MemAvailable/ {print int($2 / 2097152)}' /proc/meminfo 2>/dev/null || echo "$cores")
  (( free < cores )) && cores=$(( free > 0 ? free : 1 ))
  printf '%s' "${LOCKSTEP_JOBS:-$cores}"
}

# configure PRESET OPTION…: prints the table of what was found, or all of CMake's output on failure.
configure() {
  local preset=$1 log; log=$(mktemp)
  if ! (cd "$root" && cmake --preset "$@") >"$log" 2>&1; then
    cat "$log" >&2; rm -f "$log"
    say "configuring the preset '$preset' failed; see the reason above" >&2
    return 1
  fi
  sed -n '/^-- Lockstep /,$p' "$log"
  rm -f "$log"
}

# build PRESET TARGET…
build() {
  cmake --build "$root/build/$1" -j "$(build_jobs)" --target "${@:2}"
}

# venv DIR PACKAGE…: creates a Python environment with these packages, once. Returns non-zero if it
# cannot be created.
venv() {
  local dir=$1; shift
  if [[ -x $dir/bin/python && -f $dir/.packages && $(cat "$dir/.packages") == "$*" ]]; then
    say "$dir already has $*; skipped"
    return
  fi
  say "creating $dir with $* (pip)"
  python3 -m venv "$dir" && "$dir/bin/python" -m pip install --quiet "$@" || return
  printf '%s\n' "$*" >"$dir/.packages"
}

# Open MPI refuses root unless both variables are set. There may be more ranks than cores, and the
# program divides the cores itself.
mpi() {
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe --bind-to none \
    "$@"
}
