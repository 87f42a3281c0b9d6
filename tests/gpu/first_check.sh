# What tests/gpu/first.sh does with what it finds: no GPU, no zrun, parts that fail, are skipped or find a better setting. The
# programs are stand-ins that say numbers known beforehand.
. "$ZUG_SRC/tests/lib.sh"
first() { ok env ZUG_BUILD="$PWD/build" MPIRUN="$PWD/bin/mpirun -x" PATH="$PWD/bin:$PATH" STEPS=2 "$@" sh "$ZUG_SRC/tests/gpu/first.sh"; }
mkdir -p build bin
first
says '^first-gpu: no zrun here \(it needs MPI\), so there is nothing to try\.$'

cat >bin/mpirun <<'END2'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do
  [ "$1" != -np ] || shift
  shift
done
exec "$@"
END2
cat >build/zrun <<'END2'
#!/bin/sh
[ -z "$NO_GPU" ] || { echo "zrun: --device: there is no CUDA device here: none" && exit 2; }
rate=1000
case "$*" in
*"--debug attend-piece=$FAST") rate=1100 ;;
*"--debug attend-piece=16") exit 3 ;;
*"--debug epilogues=off") rate=900 ;;
*gpt2_2*) rate=1900 ;;
*--dry-run*) echo "note: 3 of a kind are done slowly" ;;
*--repeatable*) rate=995 ;;
esac
echo "median step 2: 10.0 ms: $rate tokens/s"
END2
printf '#!/bin/sh\n[ "$1" != -L ] || for i in $GPUS; do echo "GPU $i: one"; done\n[ "$1" = -L ] || echo "a GPU, 580.1, 80 GB"\n' >bin/nvidia-smi
printf '#!/bin/sh\nexit 0\n' >build/zc
cp build/zc build/zdata
printf '#!/bin/sh\ncase "$*" in *sanitizer*) echo "no tool" && exit 77 ;; *nccl*) echo "it hangs" && exit 1 ;; esac\n' >bin/make
printf '#!/bin/sh\nexit 1\n' >bin/nsys
chmod +x bin/* build/*
first NO_GPU=1
says '^first-gpu: no GPU here that zrun can use, so there is nothing to try \(zrun: --device: there is no CUDA device here: none\)\.$'

first GPUS="0" FAST=32 ONLY="ways piece repeatable epilogues two sanitizer check"
says '^The first hour on a GPU, 580\.1, 80 GB$'
says '^note: 3 of a kind are done slowly$'
says '^piece-16 +exit code 3'
says '^ +32 +1100 +10\.0%$'
says "^pieces of attention's gradient of 32 MiB .*: 10\.0 % more$"
says '^--repeatable always: choosing freely among algorithms gains 0\.5 % only$'
says '^ +1000 +900 +-10\.0%$'
says '^two +left out: there is one GPU'
says '^sanitizer +skipped: no tool'
says '^check +done'
grep 'no epilogues of cuBLASLt' out.txt && fail "a setting that is slower is no default"

first GPUS="0 1" FAST=none ONLY="piece two profile"
says '^nccl +exit code 1, see nccl\.out: it hangs'
says '^ +1000 +1900 +95\.0% +1900$'
says '^---- what this would change in the defaults$'
says '^nothing$'
first GPUS="0" FAST=32 ONLY="piece check" LIMIT=0
says '^piece-32 +left out: no time'
says '^nothing$'
exit 0
