# Several files by weights: which samples come, the same in every layout; what is refused before any training.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
compare=$ZUG_BUILD/tests/scenarios/tools/compare_runs

cat >recipes.zug <<'END2'
recipe one {
  bind batch = 4, seq = 32
  micro 2
  optimizer sgd(lr = 0.1)
}
recipe zero3_2 from one { mesh data = 2   split batch over data   shard params, grads, states over data unit layer }
recipe pipe_2 from one { mesh pipe = 2   stages over pipe by cost   schedule 1f1b }
recipe seq_2 from one { mesh tensor = 2   split head, ffn, vocab over tensor else seq   pad vocab to 8 }
END2
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=2 -D heads=2 -D width=32 -D context=32 -D words=128
train() { # RECIPE STEPS OPTION...; the number of ranks ends its name
  name=$1 steps=$2
  shift 2
  ranks=$(echo "$name" | sed -n 's/.*_\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train gpt2.zsg --recipe recipes.zug:"$name" --steps "$steps" "$@"
}
losses() { sed 's/.*"loss":\([^,]*\),"grad_norm":\([^,]*\),.*/\1 \2/' "$1/metrics.jsonl"; }
same() {
  losses "$1" >a.txt && losses "$2" >b.txt && [ -s a.txt ] || fail "no losses in $1 or $2"
  cmp a.txt b.txt || fail "$1 and $2 differ"
}

# ---- 2, 1 and 1 of 4: files 0, 1, 2, 0, and so on; files of 5, 3 and 4 records begin anew by themselves ----
tr -cd 'a-zA-Z ' <"$ZUG_SRC/LICENSE" | head -c 768 >text
pack() { ok zdata records "$1.raw" -o "$1.bin" --field tokens:u8:32 --field targets:u8:32; }
record() { dd if="$1.raw" bs=64 skip="$2" count=1 2>dd.txt || fail "dd"; }
head -c 320 text >a.raw
tail -c +321 text | head -c 192 >b.raw
tail -c +513 text >c.raw
[ "$(wc -c <c.raw)" -eq 256 ] || fail "too little text"
for f in a b c; do pack $f; done
for k in 0 1 2 3 4 5 6; do
  record a $((2 * k % 5)) && record b $((k % 3)) && record c $((k % 4)) && record a $(((2 * k + 1) % 5))
done >mixed.raw
pack mixed
mix='a.bin:0.50,b.bin:.25,c.bin:0.25'
train one 7 --data mixed.bin --order sequential --log lone
train one 7 --data $mix --order sequential --log mix
says '^data: b.bin: 0.25 of all samples .1 of 4.; 3 samples, gone through 2.33 times by step 7$'
says '^note: epoch 2 of a.bin began in step 3$' # its samples 4 and 0
says '^note: epoch 2 of c.bin began in step 5$'
says '^epochs: a.bin 2.8, b.bin 2.333, c.bin 1.75$'
tail -n 1 mix/metrics.jsonl | grep -q '"epochs":\[2.8,2.33333,1.75\]' || fail "no epochs in the metrics"
same mix lone
# A folder is read as one file: the samples of its first, then those of the next.
mkdir parts
head -c 640 mixed.raw >parts/0.raw
tail -c +641 mixed.raw | head -c 64 >parts/1.raw
tail -c +705 mixed.raw >parts/2.raw
for k in 0 1 2; do pack parts/$k; done
train one 7 --data parts/ --order sequential --log parts.log
same parts.log lone
train zero3_2 2 --data parts
train one 7 --data parts --log parts.log
train one 7 --data mixed.bin --log mixed.log # the same order of samples, shuffled by their numbers
same parts.log mixed.log
train one 2 --data parts:1,a.bin:1
cp parts/1.bin kept.bin
{ head -c 200 kept.bin && printf '~' && tail -c +202 kept.bin; } >parts/1.bin
refuses 'parts/1.bin is damaged: the checksum of its records differs' timeout 60 $MPIRUN -np 2 zrun train gpt2.zsg \
  --recipe recipes.zug:zero3_2 --steps 1 --data parts
mkdir none
refuses 'none is a folder without .bin files' zrun train gpt2.zsg --recipe recipes.zug:one --steps 1 --data none

train one 7 --data a.bin:3 --order sequential --log a
train one 7 --data a.bin --order sequential --log lone
same a lone

# ---- in every layout the same, in the same order or shuffled ----
train one 7 --data $mix --log one
losses one >a.txt
losses mix >b.txt
cmp -s a.txt b.txt && fail "shuffled is as sequential"
for recipe in zero3_2 pipe_2 seq_2; do
  train $recipe 7 --data $mix --log $recipe
  ok "$compare" --loss 1e-5 --norm 1e-4 $recipe/metrics.jsonl one/metrics.jsonl
done

# ---- a run that goes on: the samples that come next, and epochs counted on ----
train zero3_2 3 --data $mix --ckpt kept
train zero3_2 7 --data $mix --ckpt kept --resume --log on
says '^note: epoch 2 of c.bin began in step 5$'
tail -n 4 zero3_2/metrics.jsonl | sed 's/.*"epochs"/"epochs"/; s/,"classes.*//' >a.txt
sed 's/.*"epochs"/"epochs"/; s/,"classes.*//' on/metrics.jsonl | cmp - a.txt || fail "epochs are not counted on"
tail -n 4 zero3_2/metrics.jsonl >last.jsonl && mkdir last && mv last.jsonl last/metrics.jsonl
same on last
refuses '^zrun: error: .*kept/step-00000007.*share' \
  zrun train gpt2.zsg --recipe recipes.zug:one --steps 8 --data a.bin:2,b.bin:2,c.bin:1 --ckpt kept --resume

# ---- names with colons and commas ----
cp a.bin 'a:0.5,b:1'
train one 1 --data 'a:0.5,b:1' --log lone
cp a.bin 'a,b'
train one 1 --data 'a\,b:2,b.bin:1' --log named

# ---- what is refused ----
refused() { # PATTERN DATA [RECIPE]
  refuses "$1" $MPIRUN -np 2 zrun train gpt2.zsg --recipe recipes.zug:zero3_2 --steps 1 --data "$2"
  [ "$(grep -Ec -- "$1" out.txt)" -eq 1 ] || { cat out.txt; fail "not said once"; }
}
ok zdata pack "$ZUG_SRC/LICENSE" -o stream.bin
ok zdata records a.raw -o other.bin --field tokens:u8:32 --field labels:u8:32
ok zdata records a.raw -o narrow.bin --field tokens:u8:16 --field targets:u8:16
refused "'b.bin' has no weight; several files are A.bin:0.7,B.bin:0.3; a comma in a name is written" 'a.bin:1,b.bin'
refused "b.bin: 'x' is not a weight" 'a.bin:1,b.bin:x'
refused "b.bin has the weight 0; leave the file out" 'a.bin:1,b.bin:0'
refused 'cannot open none.bin: No such file' 'a.bin:1,none.bin:1'
refused 'a.bin and ./a.bin are one file; give it once, with the sum of its weights' 'a.bin:1,./a.bin:1'
refused 'stream.bin cannot be mixed with a.bin: it is a stream of tokens, the other records' 'a.bin:1,stream.bin:1'
refused 'other.bin cannot be mixed with a.bin: its field 1 is labels: 32 x u8, there it is targets: 32 x u8' 'a.bin:1,other.bin:1'
refused 'narrow.bin cannot be mixed with a.bin: its field 0 is tokens: 16 x u8' 'a.bin:1,narrow.bin:1'
{ head -c 200 b.bin; printf '~'; tail -c +202 b.bin; } >damaged.bin
refused 'damaged.bin is damaged: the checksum of its records differs' 'a.bin:1,damaged.bin:1'

# ---- ranks that were given other mixes ----
apart() { # PATTERN DATA-OF-RANK-1
  refuses "^zrun: error: rank 1 was given other data: $1" timeout 60 $MPIRUN -np 2 sh -c \
    'case $OMPI_COMM_WORLD_RANK in 0) d=$0 ;; *) d=$1 ;; esac
     exec zrun train gpt2.zsg --recipe recipes.zug:zero3_2 --steps 1 --data "$d"' $mix "$2"
}
apart "number of files 1 where rank 0 has 3; " a.bin
apart "file 1's share 1/3 where rank 0 has 2/4; file 2's share 1/3 where rank 0 has 1/4" a.bin:1,b.bin:1,c.bin:1
apart "file 2's number of records 4 where rank 0 has 3; file 2's field 1 .*; file 2's content's checksum .*; file 3's number of records 3 " \
  a.bin:2,c.bin:1,b.bin:1
exit 0
