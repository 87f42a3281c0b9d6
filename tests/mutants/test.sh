# Runs one test: test.sh WORK BUILD PROGRAMS LIMIT TEST. TEST is a program in the folder PROGRAMS, a unit test, or a
# scenario of WORK/src that finds its programs there; BUILD is `build` or, with sanitizers, `asan`. Fails if it fails, or
# does not end after LIMIT seconds, and says which case it was. What it printed is in PROGRAMS/run/TEST/log, what
# sanitizers said beside it. It has no input: mpirun would read what is left of the list of tests that its caller goes
# through.
work=$1 build=$2 programs=$3 limit=$4 test=$5
run=$programs/run/$(echo "$test" | tr / _)
mkdir -p "$run" && cd "$run" || exit 99
ulimit -c 0
ulimit -f 4000000 2>/dev/null # 2 GB: a change may write without end, or take memory so
if [ "$build" = asan ]; then # which maps more than there is, and whose words Criterion may lose: tests/run-unit
  ASAN_OPTIONS=abort_on_error=1:detect_leaks=1:detect_stack_use_after_return=0:hard_rss_limit_mb=12000:log_path=$run/report
  UBSAN_OPTIONS=abort_on_error=1:log_path=$run/report
  export ASAN_OPTIONS UBSAN_OPTIONS
  rm -f report.*
else
  ulimit -v 16000000 2>/dev/null
fi
case $test in
*.sh)
  ZUG_SRC=$work/src ZUG_BUILD=$programs MPIRUN=$(cat "$work/mpirun")
  export ZUG_SRC ZUG_BUILD MPIRUN
  timeout -k 5 "$limit" sh "$work/src/tests/run-mpi" "$work/src/$test" >log 2>&1 </dev/null ;;
*) timeout -k 5 "$limit" "$programs/$test" --jobs 1 --fail-fast --ascii >log 2>&1 </dev/null ;;
esac
code=$?
name=$(basename "$test" .sh)
set -- report.*
[ $code -eq 0 ] && [ ! -e "$1" ] && exit 0
case $code in
124 | 137)
  echo "$name hangs"
  # What hangs has outlived it: Criterion's worker, or what a scenario started.
  for process in /proc/[0-9]*; do
    case $(readlink "$process/exe") in "$(readlink -f "$programs")"/*) kill -9 "${process#/proc/}" ;; esac
  done 2>/dev/null ;;
*)
  case $test in
  *.sh) why=$(grep -m 1 '^FAILED' log | sed "s|$work/[^ ]*/||g") ;;
  *) why=$(sed -n 's|^\[[A-Z]*\] \([A-Za-z0-9_]*::[A-Za-z0-9_]*\).*|\1|p' log | head -n 1) ;;
  esac
  said=$([ -e "$1" ] && sed -nE 's/.*ERROR: [A-Za-z]+: ([a-z-]+).*/\1/p; s/.*runtime error: //p' "$@" | head -n 1)
  echo "$name${why:+ $why}${said:+, $said}" ;;
esac
exit 1
