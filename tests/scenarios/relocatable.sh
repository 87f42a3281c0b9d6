# `make relocatable TO=DIR`: a folder with programs and their libraries, which can be moved. Nothing in it needs the place where
# it was built, nor the one where it was put first.
. "$ZUG_SRC/tests/scenarios/lib.sh"
command -v readelf >/dev/null && command -v strings >/dev/null || { echo "no readelf and strings here"; exit 77; }
unset MAKEFLAGS MFLAGS MAKELEVEL
refuses 'which folder' make -s -C "$ZUG_BUILD" relocatable
refuses 'must begin with /' make -s -C "$ZUG_BUILD" relocatable TO=here
ok make -s -C "$ZUG_BUILD" relocatable TO="$(pwd)/first"
mkdir away
mv first away/zug
zug=$(pwd)/away/zug

# ---- libraries: those beside the programs, and the machine's ----
prefix=$(sed -n 's/^prefix = //p' "$ZUG_BUILD/Makefile") # programs know where modules are installed; it may be below the sources
for program in "$zug"/bin/*; do
  readelf -d "$program" | grep -q 'R.*PATH.*\[$ORIGIN/\.\./lib' || fail "$program looks elsewhere first"
  # Of what it needs itself only the machine's lies elsewhere. (What MPI needs is the machine's, too.)
  for name in $(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    case $name in ld-linux* | libc.* | libm.* | libdl.* | librt.* | libpthread.* | libgcc_s.* | libmpi* | libcuda.*) continue ;; esac
    at=$(ldd "$program" | awk -v name="$name" '$1 == name { print $3 }')
    [ "$at" = "$zug/bin/../lib/$name" ] || fail "$program takes $name from '$at'"
  done
  strings -a "$program" | grep -vF "$prefix" | grep -F -e "$ZUG_BUILD" -e "$(cd "$ZUG_SRC" && pwd)" &&
    fail "$program names the place where it was built"
done
[ "$(ls "$zug"/lib/*.so* | wc -l)" -ge 5 ] || fail "hardly any library is beside them"

# ---- programs of the build folder take nothing from a folder beside it: that is not ours ----
mkdir -p made/bin made/lib/zug
cp "$ZUG_BUILD/zc" "$ZUG_BUILD/zplan" made/bin
for name in "$zug"/lib/*.so*; do : >"made/lib/${name##*/}"; done
ok made/bin/zc --version
cp "$zug/bin/zc" made/bin
made/bin/zc --version >out.txt 2>&1
says 'lib/lib.*: file too short'

# ---- the module: libraries that lie beside it, where the environment names no others; where it was built comes last ----
module=$zug/lib/zug/zug-cuda.so
taken() { LD_LIBRARY_PATH=$1 ldd "$module" | awk -v name="$cudart" '$1 == name { print $3 }'; }
if [ -e "$module" ]; then
  cudart=$(readelf -d "$module" | sed -n 's/.*(NEEDED).*\[\(libcudart.*\)\]/\1/p')
  mkdir machine
  cp -L "$(taken "$LD_LIBRARY_PATH")" machine/
  cp "machine/$cudart" "$zug/lib/"
  [ "$(taken '')" = "$zug/lib/zug/../$cudart" ] || fail "the module takes $cudart from '$(taken '')', not from beside it"
  [ "$(taken "$(pwd)/machine")" = "$(pwd)/machine/$cudart" ] || fail "the module does not take $cudart from LD_LIBRARY_PATH"
fi

# ---- programs: with neither the build's nor the first place's ----
PATH=$zug/bin:$(echo "$PATH" | tr ':' '\n' | grep -vxF "$ZUG_BUILD" | paste -sd :)
[ "$(command -v zc)" = "$zug/bin/zc" ] || fail "another zc"
examples=$zug/share/zug/examples
ok zc "$examples/gpt2.zug" -o gpt2.zsg -D layers=2 -D heads=2 -D width=32 -D context=64 -D words=256
ok zplan check gpt2.zsg --recipe "$examples/recipes.zug:demo1"
[ ! -e "$module" ] || ok zplan show gpt2.zsg --recipe "$examples/recipes.zug:demo1" --device cuda
ok zdata pack "$examples/recipes.zug" -o corpus.bin
[ -x "$zug/bin/zrun" ] && [ -n "$MPIRUN" ] || exit 0
need_mpi
printf 'use recipes\nrecipe two from recipes.demo1 { mesh data = 2   split batch over data }\n' >two.zug
ok timeout -k 5 100 $MPIRUN -np 2 "$zug/bin/zrun" train gpt2.zsg --recipe two.zug:two -I "$examples" --data corpus.bin --steps 2
says '^step +2'
