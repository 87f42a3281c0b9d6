# How long one test takes as it is: time.sh WORK BUILD TEST. Leaves milliseconds, or `skipped`, in WORK/BUILD-times; fails
# if the test does, and does again: some know times, and others run beside them.
work=$1 build=$2 test=$3
name=$(echo "$test" | tr / _)
try() {
  start=$(date +%s%N)
  why=$(sh "$(dirname "$0")/test.sh" "$work" "$build" "$work/$build" 900 "$test")
}
try || try || {
  echo "mutants: $why fails without any change: see $work/$build/run/$name/log" >&2
  exit 1
}
if grep -q '^SKIP' "$work/$build/run/$name/log"; then echo skipped; else
  echo $((($(date +%s%N) - start) / 1000000))
fi >"$work/$build-times/$name"
