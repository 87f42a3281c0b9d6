# Checkpoints: a run that was stopped goes on as if it had not been, in its own layout bit for bit, in another as equal as
# layouts are; what is broken is refused before any training; what cannot be written loses nothing.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
compare=$ZUG_BUILD/tests/scenarios/tools/compare_runs

cat >recipes.zug <<'END'
recipe one {
  bind batch = 16, seq = 32
  micro 4
  optimizer adamw(lr = 0.01, warmup = 3) decay 0.1 except norm, bias
  clip 1.0
  pad vocab to 4
}
recipe ddp_2 from one { mesh data = 2   split batch over data }
recipe zero3_2 from ddp_2 { shard params, grads, states over data unit layer }
recipe ahead_2 for GPT2 from zero3_2 { prefetch 2   chunk vocab = 4   attention gather }
recipe seq_2 from one { mesh tensor = 2   split head, ffn, vocab over tensor else seq   pad vocab to 8 }
recipe all_8 from one {
  mesh pipe = 2, data = 2, tensor = 2
  split batch over data
  split head, ffn, vocab over tensor else seq
  stages over pipe by cost
  micro 2
  shard params, grads, states over data unit layer
}
recipe half_2 from zero3_2 { precision compute bf16 }
recipe sgd from one { optimizer sgd(lr = 0.1) }
recipe momentum_2 from zero3_2 { optimizer sgd(lr = 0.1, momentum = 0.9) }
recipe momentum_1 from one { optimizer sgd(lr = 0.1, momentum = 0.9) }
recipe momentum_seq_2 from seq_2 { optimizer sgd(lr = 0.1, momentum = 0.9) }
recipe momentum_8 from all_8 { optimizer sgd(lr = 0.1, momentum = 0.9) }
recipe slower from one { optimizer adamw(lr = 0.001) }
END
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zdata pack "$ZUG_SRC/README.md" -o other.bin
small="-D layers=3 -D heads=2 -D width=16 -D context=32"
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg $small -D words=131
ok zc "$ZUG_SRC/examples/gpt2.zug" -o words.zsg $small -D words=132

# ./run RANKS RECIPE OPTION...: trains.
cat >run <<'END'
#!/bin/sh
ranks=$1 recipe=$2
shift 2
[ "$ranks" -eq 1 ] && unset MPIRUN || MPIRUN="$MPIRUN -np $ranks"
exec $MPIRUN zrun train ${graph:-gpt2.zsg} --recipe recipes.zug:"$recipe" --data ${data:-text.bin} "$@"
END
chmod +x run
# same_run A B: the logs of two runs have the same steps, with losses and norms of the same bits.
same_run() {
  for log in "$1" "$2"; do sed -E 's/"steps":[0-9]*,//; s/"lr".*//' "$log/metrics.jsonl" >"$log.lines"; done
  cmp "$1.lines" "$2.lines" || fail "$2 is not the run that $1 is"
}
unfinished() { find "$1" -name '*.tmp' | wc -l; }

# ---- the same layout: bit for bit, whatever it is ----
for layout in 1:one 2:half_2 $(at_night && echo 2:ddp_2 2:momentum_2 8:all_8); do
  set -- "${layout%:*}" "${layout#*:}"
  ok ./run $1 $2 --steps 9 --log whole_$2 --save whole_$2.safetensors
  ok ./run $1 $2 --steps 4 --log $2 --ckpt ckpt_$2 --ckpt-every 3 --resume # there is none yet
  says "^checkpoint ckpt_$2/step-00000003: "
  says "^checkpoint ckpt_$2/step-00000004: "
  ok ./run $1 $2 --steps 9 --log $2 --ckpt ckpt_$2 --ckpt-every 3 --resume --save $2.safetensors
  says "^resumed from ckpt_$2/step-00000004: step 4, sample 64; read "
  same_run whole_$2 $2
  cmp whole_$2.safetensors $2.safetensors || fail "$2: a resumed run saves other weights"
  [ "$(unfinished ckpt_$2)" -eq 0 ] || fail "something unfinished is left"
done
# The same command again: nothing is left to do.
ok ./run 1 one --steps 9 --log one --ckpt ckpt_one --resume --save again.safetensors
says 'no steps: ckpt_one/step-00000009 is of step 9'
cmp again.safetensors whole_one.safetensors || fail "the last checkpoint has other weights than the run had"

# ---- its parameters alone: to begin with, and to evaluate ----
ok ./run 2 half_2 --steps 0 --init ckpt_one/step-00000009 --save taken.safetensors
says 'parameters of ckpt_one/step-00000009, of step 9'
cmp taken.safetensors whole_one.safetensors || fail "a checkpoint has other parameters than the run had"
evaluate() { # RANKS RECIPE WEIGHTS
  ok $MPIRUN -np $1 zrun eval gpt2.zsg --recipe recipes.zug:$2 --data text.bin --eval-batches 2 --init $3
  grep -o 'loss [0-9.]*' out.txt
}
[ "$(evaluate 2 half_2 ckpt_one/step-00000009)" = "$(evaluate 2 half_2 whole_one.safetensors)" ] || fail "another evaluation of a checkpoint"
grep -q 'loss [0-9]' out.txt || fail "nothing was evaluated"

# ---- another layout: as equal as layouts are ----
# AdamW divides by what may be rounding alone, so momentum is compared, with the tolerance of layouts. Files of 10 kB:
# tensors of all ranks share files, and large ones have files of their own.
ok ./run 1 momentum_1 --steps 9 --log m_whole
ok ./run 2 momentum_2 --steps 4 --ckpt m_2 --ckpt-file-size 10K
[ "$(ls m_2/step-00000004 | grep -c 'optimizer-.*safetensors')" -gt 3 ] || fail "files are not cut"
for steps in 3 4; do ok ./run 1 momentum_1 --steps $steps --ckpt from_1 --ckpt-file-size 10K --resume; done
for way in '2 momentum_seq_2 m_2' '1 momentum_1 m_2' '8 momentum_8 from_1' '2 momentum_2 from_1'; do
  [ "$way" = '2 momentum_seq_2 m_2' ] || at_night || continue
  set -- $way
  ok ./run $1 $2 --steps 9 --log $3_$2 --resume-from $3/step-00000004
  sed 1,4d m_whole/metrics.jsonl >rest.jsonl
  ok $compare --loss 1e-5 --norm 1e-5 rest.jsonl $3_$2/metrics.jsonl
done

# ---- shares: no rank writes or reads more than it speaks for or owns ----
# kB WORDS: the number before "kB" that comes after these words.
kB() { sed -nE "s/.*$1 ([0-9.]+) kB.*/\\1/p" out.txt | tail -1; }
share() { awk -v most="$1" -v all="$2" -v n="$3" 'BEGIN { exit !(most > 0 && all > 0 && most <= 1.1 * all / n) }'; }
ok ./run 2 ddp_2 --steps 1 --ckpt share
share "$(kB 'at most')" "$(kB '00000001:')" 2 || { cat out.txt; fail "one of two replicas writes more than half"; }
ok ./run 2 ahead_2 --steps 2 --ckpt share --resume
grep '^note: the recipe' out.txt && fail "a layout is said to be another recipe"
share "$(kB 'at most')" "$(kB '00000002:')" 2 || { cat out.txt; fail "one of two shards is more than half"; }
says 'resumed from'
grep '^resumed' out.txt >resumed.txt && cp resumed.txt out.txt
share "$(kB 'at most')" "$(kB 'read')" 2 || { cat out.txt; fail "one of two shards reads more than half"; }

# ---- how many stay; which is the latest ----
for steps in 2 4 6 8; do ok ./run 1 one --steps $steps --ckpt few --ckpt-keep 2 --resume; done
[ "$(echo few/step-*)" = "few/step-00000006 few/step-00000008" ] || fail "kept are $(echo few/step-*)"
# Another comment, and another place of the file, leave what is computed as it was.
mkdir moved && { echo '# a comment'; cat "$ZUG_SRC/examples/gpt2.zug"; } >moved/gpt2.zug
ok zc moved/gpt2.zug -o moved.zsg $small -D words=131
graph=moved.zsg && export graph && ok ./run 1 one --steps 9 --ckpt few --resume
says "^note: the model's source differs"
says '^resumed from few/step-00000008'
graph=gpt2.zsg
# A run that went back to an earlier checkpoint writes later ones, and it is those that --resume takes.
ok ./run 1 one --steps 7 --ckpt few --resume-from few/step-00000006
ok ./run 1 one --steps 7 --ckpt few --resume
says 'few/step-00000007 is of step 7'
# By the clock, however many steps that are.
./run 1 one --steps 100000000 --ckpt clock --ckpt-every 1s --time-limit 5s >out.txt 2>&1
[ $? -eq 75 ] || { cat out.txt; fail "a run of five seconds"; }
[ "$(ls clock | grep -c step-)" -ge 2 ] || { cat out.txt; fail "no checkpoint by the clock"; }

# ---- what must be the same ----
ckpt=from_1/step-00000004
graph=words.zsg && export graph && refuses "from_1/step-00000004: parameter 'wte' has shape \[131, 16\]; the model wants \[132, 16\]" ./run 1 momentum_1 --steps 9 --resume-from $ckpt
unset graph
data=other.bin && export data && refuses "is of a run with other data: tokens [0-9]*; this run has [0-9]*" ./run 2 momentum_2 --steps 9 --resume-from $ckpt
unset data
refuses "parameter 'wte' has shape \[131, 16\]; the model wants \[132, 16\]" $MPIRUN -np 2 zrun train words.zsg --recipe recipes.zug:ddp_2 \
  --data text.bin --steps 1 --init $ckpt
into="$(echo $ckpt/model-00001-of-*)"
refuses "--save $into lies in $ckpt, from which it is made" ./run 1 momentum_1 --steps 9 --resume-from $ckpt --save "$into"
refuses 'cannot open ./manifest.json' ./run 2 ddp_2 --steps 1 --init .
refuses "is of a run with --seed 1; this run has 2" ./run 1 momentum_1 --steps 9 --seed 2 --resume-from $ckpt
refuses "is of a run with --order shuffled; this run has sequential" ./run 1 momentum_1 --steps 9 --order sequential --resume-from $ckpt
refuses "has optimizer state .momentum_buffer., for which the recipe's optimizer has no use" ./run 1 sgd --steps 9 --resume-from $ckpt
refuses "has no optimizer state .exp_avg." ./run 2 ddp_2 --steps 9 --resume-from $ckpt
ok ./run 1 slower --steps 5 --resume-from ckpt_one/step-00000004
says "note: the recipe is another than the checkpoint's: .*lr, was 0.01, is 0.001"
refuses 'zrun train needs --ckpt DIR, the folder to --resume from' ./run 1 one --steps 9 --resume
refuses 'nowhere/step-00000001 is not a complete checkpoint: cannot open' ./run 2 ddp_2 --steps 9 --resume-from nowhere/step-00000001

# ---- broken checkpoints: named before any training, and no older one is taken in silence ----
# broken PATTERN: resuming from a copy, made worse, is refused.
copy() { rm -rf worse && cp -r from_1 worse && worse=worse/step-00000004; }
broken() {
  refuses "$1" ./run 1 momentum_1 --steps 9 --ckpt worse --resume
  grep -q '^step ' out.txt && fail "it trains"
  return 0
}
model=model-00002-of-0000
copy
m=$(echo $worse/$model*)
rm $m
broken "checkpoint $worse: cannot open $m"
copy
head -c 1000 $m >cut && mv cut $m
broken "$m has 1000 bytes; its manifest says [0-9]*"
copy
printf x >>$m
broken "$m has [0-9]* bytes; its manifest says"
copy
size=$(wc -c <$m)
printf 'xyz' | dd of=$m bs=1 seek=$((size - 100)) conv=notrunc 2>/dev/null
broken "$m is altered: the checksum of tensor '.*' is [0-9a-f]{16}, its manifest says"
copy
printf '  {' | dd of=$m bs=1 seek=8 conv=notrunc 2>/dev/null
broken "$m is altered: its header is another"
copy
cp $m $worse/model-00009-of-00009.safetensors
broken "$worse/model-00009-of-00009.safetensors is none of this checkpoint's files"
copy
sed -i 's/"step":4/"step":5/' $worse/manifest.json
broken "$worse/manifest.json: its checksum is [0-9a-f]{16}, and it says .*; complete is worse/step-00000003"
copy
head -c 500 $worse/manifest.json >cut && mv cut $worse/manifest.json
broken "$worse/manifest.json: its checksum.*; complete is worse/step-00000003"
copy
rm $worse/manifest.json
broken "$worse is not a complete checkpoint: cannot open .*; complete is worse/step-00000003"
copy
sed -i 's/"version":1/"version":7/' $worse/manifest.json
broken "version 7; this zug knows version 1"

copy
mv worse/step-00000003 worse/step-00000009
broken "worse/step-00000009 is by its manifest the checkpoint of step 3: a copy, or renamed; complete is $worse"

# ---- two runs on one folder; a folder of one node alone ----
./run 2 ddp_2 --steps 100000 --ckpt lock --log lock_log >lock.out 2>&1 &
job=$!
trap 'kill $job 2>/dev/null' EXIT
tries=0
until [ -s lock_log/metrics.jsonl ]; do
  sleep 0.1
  tries=$((tries + 1))
  [ $tries -lt 300 ] || { cat lock.out; fail "the ranks do not start"; }
done
breaks 'another run writes its checkpoints to lock' ./run 1 one --steps 1 --ckpt lock
kill $job
wait $job
mkdir rank0 rank1
mistake '\[rank 1\] error: own is another folder here .*; --ckpt wants a folder that all nodes share' $MPIRUN -np 2 sh -c \
  'cd rank$OMPI_COMM_WORLD_RANK && mkdir own && exec zrun train ../gpt2.zsg --recipe ../recipes.zug:ddp_2 --data ../text.bin --steps 1 --ckpt own'
[ "$(unfinished .)" -eq 0 ] || fail "something unfinished is left"

# ---- no room: the run goes on, what was complete stays; or it ends, as is asked for ----
# Three million parameters: 12 MB, and 24 MB of states where a file may have 16 MB (in blocks of 512 bytes).
cat >large.zug <<'END'
model Large { axis batch, a = 3000000   input x: real[batch]   input y: real[batch]
  param w[a] ~ normal(1)   loss x * sum[a](w * w) per y }
recipe two { mesh data = 2   split batch over data   bind batch = 2   optimizer adamw(lr = 0.01) }
END
ok zc large.zug -o large.zsg
for i in 1 2 3 4 5 6 7 8; do printf '\0\0\200?\0\0\200?'; done >x.raw # records of 1 and 1
ok zdata records x.raw -o x.bin --field x:f32:1 --field y:f32:1
cat >large <<'END'
#!/bin/sh
exec $MPIRUN -np 2 zrun train large.zsg --recipe large.zug:two --data x.bin --ckpt full "$@"
END
printf '#!/bin/sh\nulimit -f 32768 && exec ./large "$@"\n' >limited
chmod +x large limited
ok ./large --steps 2
refuses 'error: checkpoint of step 6: cannot write .*optimizer.*File too large' ./limited --steps 6 --ckpt-every 2 --resume
says 'note: the checkpoint of step [45] failed; complete is full/step-00000002'
says '^step 6/6'
[ "$(echo full/*)" = "full/lock full/step-00000002" ] || fail "left are: $(echo full/*)"
refuses 'error: checkpoint of step 4: cannot write' ./limited --steps 60 --ckpt-every 2 --resume --ckpt-fail end
grep -q '^step 60' out.txt && fail "it goes on"
ok ./large --steps 4 --resume
says 'resumed from full/step-00000002'
mistake "cannot make the checkpoint folder text.bin/x" ./run 1 one --steps 1 --ckpt text.bin/x

# ---- a file that only a checkpoint would have is all that is removed ----
mkdir -p mine/step-00000007.old.tmp
touch mine/step-00000007.old.tmp/notes.txt mine/step-00000007.old.tmp/model-00001-of-00001.safetensors mine/precious
ok ./run 1 one --steps 1 --ckpt mine
[ -e mine/step-00000007.old.tmp/notes.txt ] && [ -e mine/precious ] || fail "removes what is not its own"
[ -e mine/step-00000007.old.tmp/model-00001-of-00001.safetensors ] && fail "what a killed run left is not removed"
exit 0
