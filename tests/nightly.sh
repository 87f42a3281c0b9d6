# All there is, for a night (`make nightly` in a build folder): every test with many random plans and the scenarios that show
# breadth, the kernels for all GPU generations, all unit tests with sanitizers, fuzz runs of a minute each, a build by clang without
# warnings, and the source archive, which passes its own tests elsewhere. Builds lie in nightly/ below the build folder.
#
# NIGHTLY="breadth archive": these parts alone. FUZZ_SECONDS: of each fuzz target, 60 if not given.
set -u
cd "$ZUG_BUILD" || exit 99
parts=${NIGHTLY:-breadth generations sanitizers clang archive}
jobs=$(nproc 2>/dev/null || echo 2)
failed=

# build FOLDER OPTION...: configures nightly/FOLDER
build() {
  folder=nightly/$1
  shift
  mkdir -p "$folder"
  [ -f "$folder/Makefile" ] || (cd "$folder" && "$ZUG_SRC/configure" --quiet "$@")
}
in_folder() { # FOLDER TARGET...
  folder=$1
  shift
  make -s -C "nightly/$folder" -j"$jobs" --no-print-directory "$@"
}

breadth() { build breadth --enable-werror && in_folder breadth all && make -s -C nightly/breadth -j4 --no-print-directory check-breadth; }
generations() { build generations --enable-werror CUDA_ARCHS='86 89 100' && in_folder generations all; }
sanitizers() {
  build sanitizers --enable-sanitize && in_folder sanitizers check-unit &&
    FUZZ_SECONDS=${FUZZ_SECONDS:-60} && export FUZZ_SECONDS && in_folder sanitizers fuzz
}
clang() {
  command -v clang >/dev/null || { echo "nightly: clang is not installed: skipped"; return 0; }
  build clang --enable-werror --with-cuda=no CC=clang CXX=clang++ && in_folder clang check TESTS=
}
archive() { CUDA_ARCHS=90a make -s distcheck; }

mkdir -p nightly
for part in $parts; do
  began=$(date +%s)
  echo "nightly: $part"
  code=0
  $part >"nightly/$part.log" 2>&1 || code=$?
  [ $code -eq 0 ] || { tail -n 60 "nightly/$part.log"; failed="$failed $part"; }
  grep -E '^# (TOTAL|PASS|SKIP|XFAIL|FAIL|XPASS|ERROR):' "nightly/$part.log" | tr '\n' ' '
  echo "nightly: $part took $(($(date +%s) - began)) s, code $code"
done
[ -z "$failed" ] || { echo "nightly: failed:$failed; what each said is in $ZUG_BUILD/nightly"; exit 1; }
