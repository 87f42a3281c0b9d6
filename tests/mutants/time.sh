# How long one test takes as it is: time.sh WORK TEST. Leaves milliseconds, or `skipped`, in WORK/times; fails if the
# test does, and does again: some know times, and others run beside them.
work=$1 test=$2
name=$(echo "$test" | tr / _)
try() {
  start=$(date +%s%N)
  why=$(sh "$(dirname "$0")/test.sh" "$work" "$work/build" 900 "$test")
}
try || try || {
  echo "mutants: $why fails without any change: see $work/build/run/$name/log" >&2
  exit 1
}
if grep -q '^SKIP' "$work/build/run/$name/log"; then echo skipped; else
  echo $((($(date +%s%N) - start) / 1000000))
fi >"$work/times/$name"
