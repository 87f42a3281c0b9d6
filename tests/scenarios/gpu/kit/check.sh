# The kit for a GPU elsewhere (`make gpu-kit`): made, unpacked under another name, and run with nothing in the environment, on the CPU and
# with the toolkit's stand-in for the driver. It says what it lacks; what it runs is its own; every part has its line. REFERENCE=full: with
# GPT-2 124M, which takes minutes.
. "$ZUG_SRC/tests/scenarios/lib.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL
refuses 'which file' make -s -C "$ZUG_BUILD" gpu-kit
[ -e "$ZUG_BUILD/zug-cuda.so" ] || {
  refuses 'there is no kit without (CUDA: configure --with-cuda=DIR|zrun, which needs MPI)' make -s -C "$ZUG_BUILD" gpu-kit OUT="$PWD/kit.tar.xz"
  echo "this build has no CUDA"
  exit 77
}
need_mpi
ok make -s -C "$ZUG_BUILD" gpu-kit OUT="$PWD/kit.tar.xz" REFERENCE="${REFERENCE:-quick}" COMPRESS='xz -T0 -0'
[ "$(stat -c %s kit.tar.xz)" -le 40000000 ] || [ "$(sed -n 's/^CUDA_ARCHS = //p' "$ZUG_BUILD/Makefile")" != 90a ] || fail "more than 40 MB"
mkdir away && tar -xJf kit.tar.xz && mv zug-gpu away/moved && rm kit.tar.xz
kit=$PWD/away/moved

# ---- nothing of this machine but the C library, the compiler's two and CUDA's ----
base='ld-linux[^ ]*|libc|libm|libdl|librt|libpthread|libresolv|libgcc_s|libstdc\+\+'
cuda='libcuda|libcudart|libcublas[^ ]*|libcudnn|libnccl|libnvrtc'
for file in $(find "$kit/bin" "$kit/lib" -type f); do
  head -c 4 "$file" | grep -q ELF || fail "$file is not a program"
  env -i LD_LIBRARY_PATH="$kit/lib" ldd "$file" >ldd.txt
  grep '=>' ldd.txt | grep -vE "=> $kit/|^.($base)\.so[^ ]* => /|^.($cuda|zug-cuda)\.so" && fail "$file takes these from elsewhere"
  readelf -d "$file" | grep 'R.*PATH' | grep -F "$ZUG_BUILD" && fail "$file looks where it was built"
done

# ---- on the CPU ----
# kit OUT SETTING...: runs it; the report is then in report.txt
try() {
  out=$1
  shift
  env -i PATH=/usr/bin:/bin CUDA_VISIBLE_DEVICES= STEPS=3 "$@" sh "$kit/try-gpu.sh" "$out" >try.txt 2>&1
  code=$?
  cp "$out/report.txt" . || { cat try.txt; fail "no report"; }
  tar -tzf "$out/logs.tar.gz" >/dev/null || fail "no logs"
}
has() { grep -Eq -- "$1" report.txt || { cat report.txt; fail "no line like '$1'"; }; }
sed -i '/^models/s/ 10 / 2 /' "$kit/cases.txt" # steps
mkdir loaded
try cpu DEVICE=cpu PYTHON=none LD_DEBUG=libs LD_DEBUG_OUTPUT="$PWD/loaded/of"
[ $code -eq 0 ] || { cat report.txt; fail "exit code $code"; }
has "^kit: Zug .* UTC$"
for part in open first first_half zero3_2 tensor2 pipe2 all8 mid_gpt2-lm mid_gpt2-lm_half mid_llama-lm mid_llama-lm_half; do has "^$part +[0-9]+  as on CPUs: "; done
has '^ways-(gpt2|llama) .* 0 notes$'
for run in zug-gpt2 zug-llama zug-gpt2-512k zug-llama-512k set-llama-repeatable-256-MiB set-llama-repeatable-32-MiB set-gpt2-repeatable \
  set-gpt2-no-epilogues set-gpt2-uncaptured; do has "^$run +[0-9]+  [0-9]+ tokens/s"; done
for m in gpt2 llama; do
  has "^generate-$m-ids +[0-9]+  as on CPUs: 160 of 160 ids"
  has "^generate-$m +[0-9]+  [1-9][0-9]* tokens/s, 8 at once [1-9][0-9]*, prompts [1-9][0-9]* \(0\.[0-9]+|[0-9]+\.[0-9]+\)$"
done
has "^generate-llama-ids-nf4 +[0-9]+  as on CPUs: 160 of 160 ids"
for format in int8 int4 nf4; do has "^generate-llama-$format +[0-9]+  [1-9][0-9]* tokens/s$"; done
has '^times-gpt2 .*at the .* of large products'
for part in kernels nccl sanitizer; do has "^$part +[0-9]+  left out: "; done
has '^torch .*no PyTorch here'
has '^gpt2 +Zug +[0-9]+ +[0-9.]+ +[0-9.]+ '
has '^llama +Zug-repeatable-32-MiB +[0-9]+ '
# What was loaded, by zrun, mpirun and their modules: of Open MPI, BLAS and Zug the kit's alone.
cat loaded/* | sed -n 's/.*calling init: //p' | sort -u >loaded.txt
grep -q "^$kit/lib/.*libopen-pal" loaded.txt || fail "the kit's Open MPI was not used"
grep -E 'mpi|open-(rte|pal)|/mca_|blas|dnnl|zug' loaded.txt | grep -v "^$kit/" && fail "these are not the kit's"

# Beside PyTorch, a stand-in that says numbers known beforehand.
cat >python <<'END2'
#!/bin/sh
[ "$1" != -c ] || exit 0
echo "$@" >>"$0.args"
case "$*" in *cudnn*) rate=100 ;; *eager*) echo "no such thing" && exit 3 ;; *) rate=200 ;; esac
echo "torch 9.9 a variant: $rate tokens/s, 10.0 ms a step, loss 1 1, 1.0 M parameters, 0.0 GB"
END2
chmod +x python
try torch DEVICE=cpu PARTS="gpt2 torch torch_more" PYTHON="$PWD/python"
[ $code -eq 1 ] || fail "exit code $code"
has '^torch-gpt2-eager-half-flash .*code 3: no such thing'
has '^gpt2 +torch-compile-half-cudnn +100 +10\.0 .* 0\.500$'
awk '/^gpt2 +Zug / { exit $3 / 200 < $NF - 0.001 || $3 / 200 > $NF + 0.001 }' report.txt || { cat report.txt; fail "not Zug's rate over PyTorch's"; }
grep -q -- '--model gpt2 --batch 8 --seq 64 --micro 2 .* --width 64 --variant compile,half,flash --device cpu' python.args || fail "another model"

# Losses that are not the CPU's are said, and kernels are looked at before all else.
sed -i 's/"loss":\([0-9]\)/"loss":1\1/' "$kit/data/first.jsonl"
try wrong DEVICE=cpu PARTS="first ways kernels"
[ $code -eq 1 ] || fail "exit code $code"
has '^first .*NOT AS ON CPUS'
sed -n 's/^\(first\|ways-gpt2\|kernels\) .*/\1/p' report.txt | paste -sd ' ' | grep -qx 'first kernels ways-gpt2' || { cat report.txt; fail "another order"; }

# Ended early, or without time: what is known is there.
try late DEVICE=cpu PARTS=first LIMIT=0
has '^first +[0-9]+  left out: no time'
ours() { cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep "^$kit/data/tiny_gpt2.zsg"; } # of processes that train
env -i PATH=/usr/bin:/bin DEVICE=cpu STEPS=100000 PARTS="open gpt2" sh "$kit/try-gpu.sh" ended >ended.txt 2>&1 &
for i in $(seq 300); do
  grep -qs '^open' ended/report.txt && [ -n "$(ours)" ] && break
  sleep 0.1
done
kill $! && wait $!
grep -q '^open .*as on CPUs' ended/report.txt && grep -q '^zug-gpt2: ended from outside' ended/report.txt || { cat ended/report.txt; fail "nothing is left of what was ended"; }
for i in $(seq 50); do
  [ -n "$(ours)" ] || break
  sleep 0.1
done
[ -z "$(ours)" ] || fail "what was ended still runs"

# ---- with a driver that has no GPU ----
stub=$(sed -n 's/^CUDA_LIBS = .*-L\([^ ]*\).*/\1/p' "$ZUG_BUILD/Makefile")/stubs/libcuda.so
[ -e "$stub" ] || { echo "this toolkit has no stub of the driver"; exit 0; }
mkdir stub && ln -s "$stub" stub/libcuda.so.1
try none PATH=/usr/bin:/bin LD_LIBRARY_PATH="$PWD/stub"
[ $code -eq 77 ] || fail "exit code $code"
has '^open .*no CUDA device here: CUDA driver is a stub library'
try stub LD_LIBRARY_PATH="$PWD/stub" PARTS="first nccl"
[ $code -eq 1 ] || fail "exit code $code"
for part in first first_half nccl-zero3_2; do has "^$part .*CUDA driver is a stub library"; done
exit 0
