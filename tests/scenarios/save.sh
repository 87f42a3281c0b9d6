# What a run writes and reads: no run harms another's files, and a run that fails or is killed leaves what was there.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
patient="$MPIRUN --mca odls_base_sigkill_timeout 4"

cat >recipes.zug <<'END'
recipe one { optimizer sgd(lr = 0.1)   bind batch = 4, seq = 16 }
recipe two from one { mesh data = 2   split batch over data   shard params, grads, states over data }
END
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=2 -D heads=2 -D width=8 -D context=16 -D words=128
ok zc "$ZUG_SRC/examples/gpt2.zug" -o few.zsg -D layers=2 -D heads=2 -D width=8 -D context=16 -D words=105
one="zrun train gpt2.zsg --recipe recipes.zug:one --data text.bin"
two="zrun train gpt2.zsg --recipe recipes.zug:two --data text.bin"

# begin NAME COMMAND...: in the background, until its first step; $job is its process, its output goes to NAME.out.
begin() {
  name=$1 tries=0
  shift
  "$@" --log "$name" >"$name.out" 2>&1 &
  job=$!
  trap 'kill $job 2>/dev/null' EXIT
  until [ -s "$name/metrics.jsonl" ]; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { cat "$name.out"; fail "the ranks do not start"; }
  done
}
left() { find . -name '*.tmp' | wc -l; }

# ---- several runs on one path ----
ok $one --steps 1 --save w.safetensors
mv w.safetensors first.safetensors
begin long $MPIRUN -np 2 $two --steps 3000 --save w.safetensors
[ "$(left)" -eq 1 ] || fail "no room is taken for what will be saved"
refuses "option '?--foo" $one --steps 1 --save w.safetensors --foo
mistake 'the model knows 0 to 104' zrun train few.zsg --recipe recipes.zug:one --data text.bin --steps 1 --save w.safetensors
ok $one --steps 1 --save w.safetensors
[ "$(left)" -eq 1 ] || fail "another run's temporary is gone, or something is left"
cmp w.safetensors first.safetensors || fail "a run beside another saved something else"
wait $job || { cat long.out; fail "the first of two runs loses its weights"; }
cmp -s w.safetensors first.safetensors && fail "the first of two runs has not saved its weights"
[ "$(left)" -eq 0 ] || fail "something is left"

# ---- nodes that see other folders, here by another working directory ----
mkdir elsewhere
cp gpt2.zsg recipes.zug text.bin elsewhere
refuses "cannot open (there/)?w.safetensors.*No such file.*--save wants a folder that all nodes share" \
  $MPIRUN -np 2 sh -c "[ \$OMPI_COMM_WORLD_RANK = 0 ] || cd elsewhere; exec $two --steps 1 --save w.safetensors"
[ "$(left)" -eq 0 ] || fail "something is left where nothing can be saved"

# ---- runs that are ended: those that are asked save before they go (tests/scenarios/stop.sh) ----
for signal in INT TERM; do
  begin ended_$signal $patient -np 2 $two --steps 100000000 --save w.safetensors
  kill -$signal $job
  wait $job && fail "an ended run is no success"
  [ "$(left)" -eq 0 ] || fail "a run that was ended by SIG$signal leaves a file"
done
cp w.safetensors kept.safetensors
begin killed $one --steps 100000000 --save w.safetensors
kill -KILL $job
wait $job && fail "a killed run is no success"
[ "$(left)" -eq 1 ] || fail "this test's kill does not kill"
cmp w.safetensors kept.safetensors || fail "an ended run spoils the file before it"
ok $one --steps 1 --save w.safetensors
[ "$(left)" -eq 0 ] || fail "what a killed run left is not removed"

# ---- links and permissions ----
mkdir there
ln -s there/real.safetensors link.safetensors
ok $one --steps 1 --save link.safetensors
cmp there/real.safetensors first.safetensors && [ -L link.safetensors ] || fail "a link is not followed"
chmod 600 w.safetensors
echo precious >precious
ln -s precious w.safetensors.tmp
ok $MPIRUN -np 2 $two --steps 1 --save w.safetensors
[ "$(ls -l w.safetensors | cut -c 1-10)" = -rw------- ] || fail "other permissions: $(ls -l w.safetensors)"
[ "$(cat precious)" = precious ] || fail "a link in the way is written through"
rm w.safetensors.tmp
ok $one --steps 1 --init w.safetensors --save ./w.safetensors # goes on where it ended

# ---- what is no weights file is not replaced, and nothing is computed first ----
for file in text.bin gpt2.zsg recipes.zug precious; do
  cp $file kept
  mistake "$file exists and is not a safetensors file: it is not replaced" $MPIRUN -np 2 $two --steps 1 --save ./$file
  grep -q '^step 1' out.txt && fail "a run whose result cannot be saved should not start"
  cmp $file kept || fail "$file is lost"
done

# ---- a folder that not all ranks see ----
mkdir rank0 rank1
mistake '\[rank 1\] error: cannot open result.safetensors.*; --save wants a folder that all nodes share' $MPIRUN -np 2 sh -c \
  'cd rank$OMPI_COMM_WORLD_RANK && exec zrun train ../gpt2.zsg --recipe ../recipes.zug:two --data ../text.bin --steps 1 --save result.safetensors'
[ "$(left)" -eq 0 ] || fail "something is left"

# ---- metrics of earlier runs ----
cp long/metrics.jsonl long.jsonl
mistake 'cannot open none.safetensors' $MPIRUN -np 2 $two --steps 1 --log long --init none.safetensors
cmp long/metrics.jsonl long.jsonl || fail "a run that does not start loses the metrics of another"
ok $MPIRUN -np 2 $two --steps 1 --log long
cmp long/metrics.jsonl.1 long.jsonl || fail "earlier metrics are not kept"
[ "$(wc -l <long/metrics.jsonl)" -eq 1 ] || fail "not one line for one step"

# ---- what has no end, or nobody at its other end, is not read ----
mkfifo pipe
mistake 'pipe is not a regular file' $MPIRUN -np 2 zrun train pipe --recipe recipes.zug:two --data text.bin --steps 1
mistake 'pipe is not a regular file' $MPIRUN -np 2 zrun train gpt2.zsg --recipe pipe:two --data text.bin --steps 1
mistake 'pipe is not a regular file' $MPIRUN -np 2 zrun train gpt2.zsg --recipe recipes.zug:two --data pipe --steps 1
mistake 'pipe is not a regular file' $MPIRUN -np 2 $two --steps 1 --init pipe
mistake '/dev/zero is not a regular file but a device' $one --steps 1 --init /dev/zero

# ---- shifted weights, and data that shrink while they are used ----
{ cat w.safetensors; printf x; } >longer.safetensors
mistake "longer.safetensors: bytes [0-9]* to [0-9]* of its data are no tensor's" $MPIRUN -np 2 $two --steps 1 --init longer.safetensors
cp text.bin shrinks.bin
begin shrinks $MPIRUN -np 2 zrun train gpt2.zsg --recipe recipes.zug:two --data shrinks.bin --steps 100000000 --save w.safetensors
head -c 200 text.bin >shrinks.bin
wait $job && fail "trains without data"
grep -Eq '^\[rank [01]\] error: step [0-9]+: cannot read shrinks.bin: it shrank while it was read' shrinks.out ||
  { cat shrinks.out; fail "the data file is not named"; }
[ "$(left)" -eq 0 ] || fail "something is left"
exit 0
