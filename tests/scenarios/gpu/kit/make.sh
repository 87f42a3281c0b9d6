#!/bin/sh
# `make gpu-kit OUT=FILE`: Zug for a machine that has a GPU, its driver, CUDA's libraries and Python, and nothing of what Zug is built of
# or with, as one archive of one folder, zug-gpu: programs, their libraries, a small Open MPI that can be moved, tests, models, data,
# and what CPUs computed of them. The machine's C library must be as new as this one's, and so must its libstdc++.
#
#   REFERENCE=quick    the losses of CPUs are those of a small model, not of GPT-2 124M, which takes minutes
#   COMPRESS='xz -9'   the archive's
set -eu
to=$1
[ -n "$to" ] || { echo 'make gpu-kit OUT=FILE.tar.xz: which file?' >&2 && exit 2; }
case $to in /*) ;; *) to=$ZUG_BUILD/$to ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kit=$work/zug-gpu
say() { echo "gpu-kit: $*" >&2; }
cannot() { say "$*" && exit 1; }
without() { say "without $1: $2" && echo "without $1: $2" >>"$work/without"; } # WHAT WHY
needed() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; } # FILE
has() { needed "$ZUG_BUILD/zug-cuda.so" | grep -q "^lib$1\."; }

# Kernels that the compiler has not optimised are right, and slow.
unoptimised() { sed -n 's/^NVCCFLAGS = //p' "$ZUG_BUILD/Makefile" | grep -o -e '-X[a-z]*=-O[01]' | paste -sd ' '; }

versions() { find "$kit" -type f -exec readelf -V {} + 2>/dev/null | grep -o "$1_[0-9.]*" | sort -V | tail -n 1; } # WORD: the newest that is asked for

# ---- can it be made, and of what? ----
[ -x "$ZUG_BUILD/zrun" ] || cannot "there is no kit without zrun, which needs MPI: install Open MPI and configure again"
[ -e "$ZUG_BUILD/zug-cuda.so" ] || cannot "there is no kit without CUDA: configure --with-cuda=DIR, where DIR has a toolkit, and build again"
[ -x "$ZUG_BUILD/tests/scenarios/gpu/test-kernels" ] || without "part kernels" "this build has no Criterion, and so no test-kernels"
has nccl || without "part nccl" "this build has no NCCL; ranks exchange by way of the host"
has cudnn || without cuDNN "this build has none, and attention is by kernels of its own"
has nvrtc || without NVRTC "this build has none, and pointwise functions are interpreted"
pkglib=$(ompi_info --path pkglibdir 2>/dev/null | awk '{ print $2 }') prefix=$(ompi_info --path prefix 2>/dev/null | awk '{ print $2 }')
[ -z "$(unoptimised)" ] || say "this build's kernels are not optimised ($(unoptimised)): times that the kit measures will not count; configure without NVCCFLAGS"
launcher=yes ranks="parts layouts and nccl"
case $(ompi_info --version 2>/dev/null | head -n 1) in
*' v4.'*) ;;
*) launcher= && without "$ranks" "only Open MPI 4 can be moved, and here is $(mpirun --version 2>/dev/null | head -n 1 | grep . || echo none)" ;;
esac
case $launcher:$pkglib in
:* | yes:"$prefix"/*) ;;
*) launcher= && without "$ranks" "Open MPI's modules in $pkglib are not below its prefix $prefix, and cannot be moved" ;;
esac

# ---- programs and their libraries ----
makes() { ${MAKE:-make} -s -C "$ZUG_BUILD" "$@" >"$work/make.out" 2>&1 || { tail -n 20 "$work/make.out" >&2 && exit 1; }; }
makes relocatable TO="$kit"
rm -rf "$kit/share"
strip -o "$kit/bin/compare_runs" "$ZUG_BUILD/tests/scenarios/tools/compare_runs"
[ ! -x "$ZUG_BUILD/tests/scenarios/gpu/test-kernels" ] || { makes installed/tests/scenarios/gpu/test-kernels && cp "$ZUG_BUILD/installed/tests/scenarios/gpu/test-kernels" "$kit/bin/"; }
[ ! -e "$ZUG_BUILD/tests/scenarios/gpu/apart.so" ] || strip -o "$kit/lib/apart.so" "$ZUG_BUILD/tests/scenarios/gpu/apart.so"

# ---- Open MPI: its launcher, and those of its modules that go without libraries for networks ----
modules=
if [ -n "$launcher" ]; then
  modules=$kit/${pkglib#"$prefix"/}
  mkdir -p "$modules" "$kit/share/openmpi"
  cp -L "$(readlink -f "$(command -v orterun)")" "$(readlink -f "$(command -v orted)")" "$kit/bin/"
  ln -s orterun "$kit/bin/mpirun"
  for file in "$pkglib"/mca_*.so; do
    case ${file##*/mca_} in
    *ucx* | *ofi* | *psm* | *openib* | *monitoring* | *slurm* | *gridengine* | *flux* | *jsm* | *scoll* | *spml* | *sshmem* | *memheap* | atomic* | \
      *romio* | *ompio* | fs_* | fbtl* | fcoll* | sharedfp* | *pessimist* | *netlink* | *treematch*) ;;
    *) cp -L "$file" "$modules/" ;;
    esac
  done
  cp "$(ompi_info --path pkgdatadir | awk '{ print $2 }')"/help-*.txt "$kit/share/openmpi/"
fi
MPI=beside sh "$ZUG_SRC/share/beside.sh" "$kit" ${modules:+"$modules"/*.so}
rm -f "$kit/lib/libstdc++.so.6" # the machine's is newer, and its libraries of CUDA want it
find "$kit" -type f \( -name '*.so*' -o -path "$kit/bin/*" \) -exec strip {} + 2>/dev/null || true # scripts are not to be stripped

# ---- models, data, recipes, and what CPUs make of them ----
PATH=$kit/bin:$PATH
export PATH
sh "$ZUG_SRC/tests/scenarios/gpu/kit/inputs.sh" "$kit" >"$work/inputs.out" 2>&1 || { tail -n 5 "$work/inputs.out" >&2 && exit 1; }
cd "$kit/data"
awk '$1 == "first"' ../cases.txt | while read -r _ model recipe _ data steps _; do
  name=${recipe#*:}
  say "recipe $name on CPUs"
  zrun train "$model.zsg" --recipe "${recipe%:*}.zug:$name" --data "$data.bin" --device cpu --threads "$(nproc)" --steps "$steps" --log "$work/$name" \
    >"$work/cpu.out" 2>&1 </dev/null || { tail -n 5 "$work/cpu.out" >&2 && exit 1; }
  sed -E 's/.*("step":[^,]*).*("loss":[^,]*).*("grad_norm":[^,}]*).*/{\1,\2,\3}/' "$work/$name/metrics.jsonl" >"$name.jsonl" # no times: the same in every kit
done

# ---- the archive: the same bytes of the same build ----
date=$(git -C "$ZUG_SRC" log -1 --format=%ct 2>/dev/null || stat -c %Y "$ZUG_SRC/configure.ac")
{
  echo "Zug $(git -C "$ZUG_SRC" describe --always --dirty 2>/dev/null || "$ZUG_BUILD/zc" --version) of $(date -u -d "@$date" '+%Y-%m-%d %H:%M') UTC"
  echo "for GPUs $(sed -n 's/^CUDA_ARCHS = //p' "$ZUG_BUILD/Makefile"), with $(needed "$ZUG_BUILD/zug-cuda.so" | paste -sd ' ')"
  echo "made with $(ldd --version | head -n 1 | cut -d ' ' -f 2-); wants $(versions GLIBC) and $(versions GLIBCXX)"
  cat "$work/without" 2>/dev/null || true
  [ -z "$(unoptimised)" ] || echo "kernels of Zug's own are not optimised ($(unoptimised)): times that are measured do not count"
} >"$kit/MADE"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX --mtime="@$date" -cf - zug-gpu | ${COMPRESS:-xz -9} >"$to.tmp"
mv "$to.tmp" "$to"
say "$to: $(($(stat -c %s "$to") / 1000000)) MB, $(du -sm "$kit" | cut -f 1) MiB unpacked"
