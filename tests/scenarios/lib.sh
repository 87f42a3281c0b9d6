# Helpers for scenario tests; see tests/run-scenario. Read with: . "$ZUG_SRC/tests/scenarios/lib.sh"

fail() {
  echo "FAILED: $*"
  exit 1
}

# True where all is to be tried (`make nightly`); a push tries the few that show that it works at all.
at_night() { [ "${BREADTH:-}" = all ]; }

# Skips the test where there is no MPI.
need_mpi() {
  export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" # MPI's own are many
  [ -n "$MPIRUN" ] && [ -x "$ZUG_BUILD/zrun" ] && return
  echo "no MPI here"
  exit 77
}

# $emu is a zrun whose GPUs are threads (tests/scenarios/cuda/gpu.h); skips the test where it is not built.
need_emulated_gpu() {
  need_mpi
  emu="$ZUG_BUILD/tests/scenarios/cuda/zrun-emu"
  [ -x "$emu" ] && return
  echo "this build has no CUDA with NCCL, or no C++ compiler"
  exit 77
}

# on N: words that start N ranks of what follows them: `ok $(on 2) zrun train ...`. One needs none.
on() { [ "$1" -eq 1 ] || echo "$MPIRUN -np $1"; }

# unpack ARCHIVE FOLDER: writes the files of a text archive (tests/unit/golden.h) there.
unpack() {
  mkdir -p "$2" && LC_ALL=C awk -v to="$2" '/^-- .* --$/ { file = to "/" substr($0, 4, length($0) - 6); printf "" >file; next } { print >file }' "$1"
}

# ok COMMAND...: the command must succeed; its output is shown if it does not.
ok() {
  "$@" >out.txt 2>&1 && return
  code=$?
  cat out.txt
  fail "exit code $code from: $*"
}

# refuses PATTERN COMMAND...: the command must fail by itself (not by a signal, a sanitizer or a time limit)
# within a minute, and say something that matches PATTERN (grep -E).
refuses() {
  pattern=$1
  shift
  timeout -k 5 60 "$@" >out.txt 2>&1
  code=$?
  [ $code -ne 0 ] && [ $code -lt 124 ] || { cat out.txt; fail "exit code $code, wanted a refusal: $*"; }
  grep -Eq -- "$pattern" out.txt || { cat out.txt; fail "no message like '$pattern' from: $*"; }
  grep -q "bug in zug\|ERROR: AddressSanitizer\|runtime error:" out.txt && { cat out.txt; fail "$*"; }
  return 0
}

# mistake PATTERN COMMAND...: the same, with the code of what is wrong and would be again.
mistake() {
  refuses "$@"
  [ $code -eq 2 ] || { cat out.txt; fail "exit code $code of a mistake: $*"; }
}

# breaks PATTERN COMMAND...: the same, with the code of what may go better another time.
breaks() {
  refuses "$@"
  [ $code -eq 1 ] || { cat out.txt; fail "exit code $code of what is no mistake: $*"; }
}

# says PATTERN: the last `ok` or `refuses` printed a line that matches.
says() {
  grep -Eq -- "$1" out.txt && return
  cat out.txt
  fail "no line like '$1'"
}

# The same, wherever lines are broken: as Open MPI 5 breaks those of its own.
says_broken() {
  tr '\n' ' ' <out.txt | grep -Eq -- "$1" && return
  cat out.txt
  fail "nothing like '$1'"
}

# rank_among RANK PID...: those of the processes that are this rank of a run
rank_among() {
  rank_wanted=$1
  shift
  for pid in "$@"; do
    tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$rank_wanted" && echo "$pid"
  done
}
# rank_pid RANK: the process of a rank whose mpirun is $job
rank_pid() {
  rank_among "$1" $(for process in /proc/[0-9]*; do
    [ "$(awk '{ print $4 }' "$process/stat" 2>/dev/null)" = "$job" ] && echo "${process#/proc/}"
  done)
}
