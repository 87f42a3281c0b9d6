#!/bin/sh
# try-gpu.sh [OUT]: what Zug does on this machine's GPU, in eight minutes at most; what is worth most comes first. It is in the folder
# that `make gpu-kit` made, and needs the driver, CUDA's libraries (a toolkit's, or those that PyTorch brings) and Python for PyTorch's
# part. Whatever fails is a line of the report, its log is kept, and the rest goes on. After every line OUT (./out) has report.txt and
# logs.tar.gz, so that something is there whenever it is ended. Code 0: all went well; 1: something did not; 77: nothing can be tried here.
#
#   LIMIT=440         nothing is begun after so many seconds, and what was begun has ended 30 later
#   PARTS="open ..."  only these, in this order; README.md says what each is
#   EVERY=yes         all cases of cases.txt, more checks of each
#   STEPS=9           of each run that is measured; the median counts
#   PYTHON=python3    which has PyTorch; none: no comparison
#   TORCH="gpt2:compile,half,cudnn ..."  what part torch_more measures: MODEL:VARIANT of torch_lm.py
#   DEVICE=cpu        a trial of the kit, with small models in place of those that are measured
set -u
kit=$(cd "$(dirname "$0")" && pwd)
d=$kit/data
out=${1:-$PWD/out} limit=${LIMIT:-440} steps_measured=${STEPS:-9} dev=${DEVICE:-cuda}
all="open first ways gpt2 llama large kernels generate torch pieces times_gpt2 times_llama layouts models torch_more settings sanitizer nccl two profile"
parts=${PARTS:-$all}
began=$(date +%s)
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
work=$(mktemp -d "${TMPDIR:-/tmp}/try-gpu.XXXXXX") && cd "$work" && mkdir logs || exit 2
seconds() { echo $(($(date +%s) - began)); }
. "$d/models-gpu.sh"
. "$kit/parts.sh"

# ---- the report: what is known, after every line ----
publish() {
  { cat logs/head.txt logs/lines.txt && echo && table; } >"$out/report.tmp" 2>/dev/null && mv "$out/report.tmp" "$out/report.txt"
  tar -czf "$out/logs.tmp" logs 2>/dev/null && mv "$out/logs.tmp" "$out/logs.tar.gz"
}
running='' hidden='' watch='' hopeless='' failed='' tried='' verdict=good since=0 program=''
finish() {
  for pid in $running $hidden $watch; do kill "$pid"; done 2>/dev/null
  publish
  cd / && rm -rf "$work"
}
trap '[ -z "$running" ] || echo "$log: ended from outside" >>logs/lines.txt; finish; exit 1' INT TERM

# ---- libraries: ours, then those that come with PyTorch, then a toolkit's, then what was there already ----
python=${PYTHON:-python3}
command -v "$python" >/dev/null 2>&1 || python=
cuda_folders() {
  for dir in $([ -z "$python" ] || "$python" -c 'import glob, site, sys
for s in list(sys.path) + site.getsitepackages():
    print("\n".join(glob.glob(s + "/nvidia/*/lib")))' 2>/dev/null) /usr/local/cuda*/lib64 /usr/local/cuda*/targets/*/lib /opt/cuda/lib64; do
    ls "$dir"/lib*.so.* >/dev/null 2>&1 && echo "$dir"
  done | awk '!seen[$0]++' | paste -sd: -
}
cuda=$(cuda_folders)
libraries=$kit/lib${cuda:+:$cuda}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
PATH=$kit/bin:$PATH
mpirun=${MPIRUN:-mpirun} mpirun=$(command -v "${mpirun%% *}" >/dev/null && echo "${mpirun%% *}")
cores=$(nproc) threads=$((cores > 8 ? 8 : cores)) # nproc listens to OMP_NUM_THREADS
[ ! -x "$kit/bin/orterun" ] || export OPAL_PREFIX="$kit" # Open MPI as it was moved
export OMPI_MCA_plm=isolated OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_ALLOW_RUN_AS_ROOT=1 \
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PMIX_MCA_pcompress_base_silence_warning=1 OMP_NUM_THREADS=1 TORCHINDUCTOR_CACHE_DIR="$work/inductor"

# ---- what there is ----
nvidia-smi >logs/nvidia-smi.out 2>&1
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null >logs/gpu.txt
gpus=$(grep -c . logs/gpu.txt)
{
  echo "Zug on $(head -n 1 logs/gpu.txt | grep . || echo 'no GPU that nvidia-smi knows') ($gpus), $cores cores; $(date -u '+%Y-%m-%d %H:%M') UTC"
  sed 's/^/kit: /' "$kit/MADE" 2>/dev/null
  echo "here: $(ldd --version 2>&1 | head -n 1 | cut -d ' ' -f 2-); libraries of CUDA in ${cuda:-nowhere}"
  ours ldd "$kit/lib/zug/zug-cuda.so" 2>/dev/null | grep 'not found'
  printf '\n%-30s %5s  result\n' part secs
} >logs/head.txt
: >logs/lines.txt
publish
# Clocks; and the driver stays awake between processes.
if [ -s logs/gpu.txt ]; then
  nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,memory.used,utilization.gpu --format=csv -l 1 >logs/clocks.csv 2>&1 &
  watch=$!
fi

since=$(seconds)
early=
for p in $parts; do
  [ "$p" != "$early" ] || continue
  [ -z "$hopeless" ] || break
  command -v "part_$p" >/dev/null || { skip "$p" "no such part" && continue; }
  "part_$p"
  # Where GPT-2's losses are not those of CPUs, kernels are looked at before anything is measured.
  [ "$p" != first ] || [ -z "$failed" ] || case " $parts " in *' kernels '*) part_kernels && early=kernels ;; esac
done
finish
cat "$out/report.txt"
[ -n "$tried" ] && [ -z "$hopeless" ] || exit 77
[ -z "$failed" ] || exit 1
