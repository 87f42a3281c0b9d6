# zrun with MPICH where that is there beside the MPI that the build found: mpicc.mpich in PATH, as Debian has it, or a folder
# ZUG_MPICH that has bin/mpicc and bin/mpirun. What speaks MPI is compiled anew, all else is the build's.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
if [ "$ZUG_MPICH" ]; then
  wrapper=$ZUG_MPICH/bin/mpicc launcher=$ZUG_MPICH/bin/mpirun
else
  wrapper=$(command -v mpicc.mpich) launcher=$(command -v mpirun.mpich)
fi
[ -x "$wrapper" ] && [ -x "$launcher" ] || { echo "no MPICH here (mpicc.mpich and mpirun.mpich, or ZUG_MPICH=DIR)"; exit 77; }
grep -q '^MPI_LIBS.*mpich' "$ZUG_BUILD/Makefile" && { echo "the build has MPICH: all tests are with it"; exit 77; }
for word in $("$wrapper" -show | tr -d '"'); do
  case $word in
  -I* | -D*) cflags="$cflags $word" ;;
  -L* | -l* | -Wl,*) libs="$libs $word" ;;
  esac
done
unset MAKEFLAGS MFLAGS MAKELEVEL
ok make -s -C "$ZUG_BUILD" zrun-other OTHER="$(pwd)/zrun-mpich" OTHER_CFLAGS="$cflags" OTHER_LIBS="$libs"
readelf -d zrun-mpich | grep 'NEEDED.*libmpi.so' && fail "it is linked with Open MPI as well"

ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=4 -D heads=2 -D width=32 -D context=32 -D words=256
ok zdata pack "$ZUG_SRC/examples/recipes.zug" -o text.bin
sed 's/head, kv, /head, /' "$ZUG_SRC/tests/data/models/layouts.zug" >recipes.zug
mpich() { # RANKS ARGUMENT...
  ranks=$1
  shift
  timeout -k 5 100 "$launcher" -np "$ranks" ./zrun-mpich "$@"
}
train() { # RECIPE: the rest of the arguments of zrun
  echo "train gpt2.zsg --recipe recipes.zug:$1 --data text.bin --steps 4"
}

# The same as one rank, in layouts that use all that zrun asks of an MPI.
ok timeout -k 5 100 zrun $(train one) --log one
for recipe in pipe2 zero3_4 pipe_tensor4 all_zero3_8; do
  ok mpich "${recipe##*[!0-9]}" $(train $recipe) --log $recipe
  ok "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-4 --norm 1e-3 $recipe/metrics.jsonl one/metrics.jsonl
done
# Checkpoints by one MPI are read by the other; mistakes end all ranks with their code.
ok mpich 4 $(train zero3_4) --ckpt kept --log whole
rm -r kept
ok mpich 4 train gpt2.zsg --recipe recipes.zug:zero3_4 --data text.bin --steps 2 --ckpt kept
ok timeout -k 5 100 $MPIRUN -np 2 zrun $(train pipe2) --ckpt kept --resume --log rest
says '^step +4'
mpich 2 $(train zero3_4) >out.txt 2>&1
[ $? -eq 2 ] || { cat out.txt; fail "the code of a mistake"; }
says 'zrun: error: .*4 ranks'
exit 0
