#!/bin/sh
# draw.sh [DIR [timeline]]: makes the pictures of the documents, or only that one, by the programs in PATH, into DIR or where
# this file lies (`make docs-images`). ZUG_SRC is the source folder; MPIRUN the launcher with its options, where others than these are wanted.
#
#   timeline.svg  a predicted step; any machine draws the same
#   losses.svg    a small GPT-2 on eight ranks and on one: the same machine draws the same, and others nearly
set -eu
ZUG_SRC=${ZUG_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
mkdir -p "${1:-$ZUG_SRC/docs/images}"
to=$(cd "${1:-$ZUG_SRC/docs/images}" && pwd)
mpirun="${MPIRUN:-mpirun --allow-run-as-root --oversubscribe --bind-to none --mca pml ob1 --mca btl self,vader \
--mca btl_vader_single_copy_mechanism none}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
examples=$ZUG_SRC/examples

zc "$examples/llama3.zug" -o llama3.zsg >said.txt
zplan report llama3.zsg --recipe "$ZUG_SRC/docs/images/pictures.zug:pipeline" --cluster "$examples/clusters.zug:h100" -o timeline.svg
cp timeline.svg "$to"
[ "${2:-}" != timeline ] || exit 0

zc "$examples/gpt2.zug" -o gpt2.zsg -D layers=2 -D heads=4 -D width=64 -D words=256 -D context=64 >said.txt
zdata pack "$ZUG_SRC/LICENSE" -o text.bin >said.txt
train() { # NAME RECIPE [LAUNCHER...]
  log=$1 recipe=$2
  shift 2
  "$@" zrun train gpt2.zsg --recipe "$examples/recipes.zug:$recipe" --data text.bin --steps 120 --log "$log" >said.txt 2>&1 ||
    { cat said.txt >&2; exit 1; }
}
# shellcheck disable=SC2086 # words are wanted
train '8 ranks' demo $mpirun -np 8
train '1 rank' demo1 env
zlog plot '8 ranks' '1 rank' -o losses.svg
cp losses.svg "$to"
