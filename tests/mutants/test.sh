# Runs one test: test.sh WORK BUILD LIMIT TEST. TEST is a program in BUILD, a unit test, or a scenario of WORK/src
# that finds its programs in BUILD. Fails if it fails, or does not end after LIMIT seconds, and says which case it was.
# What it printed is in BUILD/run/TEST/log. It has no input: mpirun would read what is left of the list of tests that its caller goes through.
work=$1 build=$2 limit=$3 test=$4
run=$build/run/$(echo "$test" | tr / _)
mkdir -p "$run" && cd "$run" || exit 99
ulimit -c 0
ulimit -f 4000000 2>/dev/null # 2 GB: a change may write without end, or take memory so
ulimit -v 16000000 2>/dev/null
case $test in
*.sh)
  ZUG_SRC=$work/src ZUG_BUILD=$build MPIRUN=$(cat "$work/mpirun")
  export ZUG_SRC ZUG_BUILD MPIRUN
  timeout -k 5 "$limit" sh "$work/src/tests/run-mpi" "$work/src/$test" >log 2>&1 </dev/null ;;
*) timeout -k 5 "$limit" "$build/$test" --jobs 1 --fail-fast --ascii >log 2>&1 </dev/null ;;
esac
code=$?
[ $code -eq 0 ] && exit 0
name=$(basename "$test" .sh)
case $code in
124 | 137) echo "$name hangs" ;;
*)
  case $test in
  *.sh) why=$(grep -m 1 '^FAILED' log | sed "s|$work/[^ ]*/||g") ;;
  *) why=$(sed -n 's|^\[[A-Z]*\] \([A-Za-z0-9_]*::[A-Za-z0-9_]*\).*|\1|p' log | head -n 1) ;;
  esac
  echo "$name${why:+ $why}" ;;
esac
exit 1
