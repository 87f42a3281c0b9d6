#!/bin/sh
# `make first-gpu` and `make check-gpu`: the parts of the kit (kit/try-gpu.sh, README.md) with the programs of this build and every case,
# so in more time than the kit has. Works by hand as well: first.sh OUT, started in the build folder.
#
#   LIMIT, PARTS, STEPS, PYTHON, TORCH, EVERY   as try-gpu.sh has them
set -eu
ZUG_BUILD=${ZUG_BUILD:-$(pwd)}
ZUG_SRC=${ZUG_SRC:-$(cd "$(dirname "$0")/../../.." && pwd)}
out=${1:-$ZUG_BUILD/tests/scratch/first-gpu}
[ -x "$ZUG_BUILD/zrun" ] || { echo "first-gpu: no zrun here (it needs MPI), so there is nothing to try." && exit 77; }
rm -rf "$out" && mkdir -p "$out/kit/bin" "$out/kit/lib/zug"
for each in zc zdata zplan zrun tests/scenarios/tools/compare_runs tests/scenarios/gpu/test-kernels; do
  [ ! -x "$ZUG_BUILD/$each" ] || ln -s "$ZUG_BUILD/$each" "$out/kit/bin/"
done
[ ! -e "$ZUG_BUILD/tests/scenarios/gpu/apart.so" ] || ln -s "$ZUG_BUILD/tests/scenarios/gpu/apart.so" "$out/kit/lib/"
[ ! -e "$ZUG_BUILD/zug-cuda.so" ] || ln -s "$ZUG_BUILD/zug-cuda.so" "$out/kit/lib/zug/"
PATH=$out/kit/bin:$PATH
export PATH ZUG_SRC EVERY="${EVERY:-yes}" LIMIT="${LIMIT:-2280}"
sh "$ZUG_SRC/tests/scenarios/gpu/kit/inputs.sh" "$out/kit" >"$out/inputs.out" 2>&1 || { cat "$out/inputs.out" && exit 1; }
exec sh "$out/kit/try-gpu.sh" "$out"
