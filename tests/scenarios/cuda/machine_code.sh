# The machine code of the kernels, for both generations of GPUs: that nothing spills, that what streams moves 16 bytes an
# access, that registers leave room for the blocks that are meant, and that there is no f64 but where it is wanted. Of the
# library as it was built, and of the programs that NVRTC makes of the plans of GPT-2 in bf16 and Llama in f32. Needs no GPU.
. "$ZUG_SRC/tests/scenarios/lib.sh"
lib=$ZUG_BUILD/libkernels_cuda.a
nvcc=$(sed -n 's/^NVCC = //p' "$ZUG_BUILD/Makefile")
[ -f "$lib" ] && [ -x "$nvcc" ] || { echo "no CUDA in this build"; exit 77; }
PATH=$PATH:$(dirname "$(readlink -f "$nvcc")")
command -v cuobjdump || { echo "no cuobjdump here (a part of the CUDA toolkit): machine code cannot be looked at"; exit 77; }
stated=0
"$nvcc" --version | grep -q 'release 13\.0' && stated=1 # machine_code.txt has its registers
table=$ZUG_SRC/tests/scenarios/cuda/machine_code.txt
sed '/^#.*programs\. /,$d' "$table" >kernels.txt
sed '1,/^#.*programs\. /d' "$table" >programs.txt
failed=0

# look ARCH TABLE FILE: FILE.res and FILE.ARCH.sass against the table.
look() {
  LC_ALL=C awk -f "$ZUG_SRC/tests/scenarios/cuda/machine_code.awk" -v arch="$1" -v stated=$stated "$2" "$3.res" "$3.$1.sass" || failed=1
}

# ---- the library ----
cuobjdump -res-usage "$lib" >kernels.res 2>err.txt || { cat err.txt; fail "cuobjdump"; }
archs=$(sed -n 's/^arch = //p' kernels.res | sort -u | grep -xE 'sm_80|sm_90a?') # of others nothing is stated
[ -n "$archs" ] || { echo "no kernels for sm_80 or sm_90 in this build"; exit 77; }
echo "kernels for" $archs
# Of products and attention, which are bound by arithmetic, only registers and stack: their code is as long as that of all
# others.
for arch in $archs; do
  for file in "$ZUG_SRC"/kernels/cuda/*.cu; do
    name=$(basename "$file" .cu)
    case $name in dot | conv | attend | attend_mma | attend_pages_mma | linear_attend) ;; *) cuobjdump -sass -arch "$arch" "$ZUG_BUILD/kernels/cuda/$name.o" ;; esac
  done >"kernels.$arch.sass" &
done
# ---- programs, meanwhile ----
if [ -x "$ZUG_BUILD/tests/scenarios/cuda/programs" ]; then
  ok zc -q "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=2 -D heads=12 -D width=768 -D context=1024
  ok zc -q "$ZUG_SRC/examples/llama3.zug" -o llama.zsg -D layers=2 -D heads=32 -D kv_heads=8 -D width=2048 -D inner=8192 -D words=32000
  # Without the limit: calls that make again what might be kept have most operands.
  sed 's/limit memory 76 GB//' "$ZUG_SRC/bench/recipes-gpu.zug" >bf16.zug
  sed 's/compute bf16/compute f32/' bf16.zug >f32.zug
  ok "$ZUG_BUILD/tests/scenarios/cuda/programs" gpt2.zsg bf16.zug:gpt2 llama.zsg f32.zug:llama
  cat out.txt
  for arch in sm_80 sm_90; do
    { echo "arch = $arch" && cuobjdump -res-usage programs.$arch.cubin; } >>programs.res 2>>err.txt
    cuobjdump -sass programs.$arch.cubin >programs.$arch.sass
  done
fi
wait
for arch in $archs; do look "$arch" kernels.txt kernels; done
[ ! -f programs.res ] || for arch in sm_80 sm_90; do look $arch programs.txt programs; done

# ---- and that it would see it: a kernel that spills, one whose 16 bytes are four times four, one that nobody stated ----
sed 's/^adamw .*/adamw 32 4 5! no 0/; /^axpy /d' kernels.txt >wrong.txt
arch=$(echo $archs | sed 's/ .*//')
LC_ALL=C awk -f "$ZUG_SRC/tests/scenarios/cuda/machine_code.awk" -v arch="$arch" -v stated=1 wrong.txt kernels.res "kernels.$arch.sass" >out.txt &&
  fail "a wrong table passes"
for text in 'adamw: .* registers, more than 32' 'adamw: 4 stores of 16 bytes, not 5' 'adamw: .* stores of less than 16 bytes' \
  'adamw: .* f64 arithmetic' 'axpy: not in the table'; do says "$text"; done
[ $failed -eq 0 ] || fail "the lines above"
[ $stated -eq 1 ] || echo "registers and stack were not held against those of nvcc 13.0"
exit 0
