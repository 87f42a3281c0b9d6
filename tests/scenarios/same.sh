# Ranks that were started differently are not believed: before anything hangs or trains, one message says who differs in what.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

cat >recipes.zug <<'END'
recipe two {
  mesh data = 2
  split batch over data
  optimizer adamw(lr = 0.01, warmup = 3) decay 0.1 except norm
  clip 0.5
  bind batch = 4, seq = 16
}
recipe four from two { mesh data = 1, a = 2, b = 2   split batch over a, b }
END
echo 'cluster small { device memory 1 GB }  cluster large { device memory 2 GB }' >clusters.zug
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=1 -D heads=2 -D width=8 -D context=16 -D words=128
ok zc "$ZUG_SRC/examples/gpt2.zug" -o other.zsg -D layers=1 -D heads=2 -D width=8 -D context=16 -D words=127
head -c 2000 "$ZUG_SRC/LICENSE" >text
tr a b <text >text2
ok zdata pack text -o text.bin
ok zdata pack text2 -o text2.bin
printf 'too short' >short
ok zdata pack short -o short.bin
run="--recipe recipes.zug:two --data text.bin --steps 2"

# Rank R runs the command in rank-R. By a shell on each: the mpirun of Debian 13 (Open MPI 5.0.7) crashes when it is given two
# programs, `-np 1 A : -np 1 B`.
started() { # a command for each rank
  rm -f rank-*
  n=0
  for command; do
    echo "exec $command" >rank-$n
    n=$((n + 1))
  done
}
launch() { timeout -k 5 60 $MPIRUN -np $n sh -c '. ./rank-$OMPI_COMM_WORLD_RANK' >out.txt 2>&1; }
# apart PATTERN COMMAND COMMAND: of rank 0, 1, ... Nothing is trained, and what matches is said once.
apart() {
  pattern=$1
  shift
  started "$@"
  launch
  code=$?
  [ $code -ne 0 ] && [ $code -lt 124 ] || { cat out.txt; fail "exit code $code from: $*"; }
  [ "$(grep -Ec -- "$pattern" out.txt)" -eq 1 ] || { cat out.txt; fail "no single line like '$pattern' from: $*"; }
  grep -q '^step 1\|bug in zug' out.txt && { cat out.txt; fail "believed: $*"; }
  return 0
}
one="zrun train gpt2.zsg $run"

# ---- a program beside that never calls MPI; looked at in the end ----
mkdir beside
cp gpt2.zsg recipes.zug text.bin beside
(cd beside && started "$one" "sleep 12" && launch) &
beside=$!

# ---- options: all that there are ----
tried=
option() { # PATTERN OPTIONS: which rank 1 alone is given
  tried="$tried $2"
  apart "^zrun: error: rank 1 was given other options: .*$1" "$one" "$one $2"
}
option '--seed 2 where rank 0 has 1' '--seed 2'
option '--steps 3 where rank 0 has 2' '--steps 3'
option '--order sequential where rank 0 has shuffled' '--order sequential'
option '--threads 2 where rank 0 has 1' '--threads 2'
option '--times yes where rank 0 has no' '--times' # would wait for ever
option '--dry-run yes where rank 0 has no' '--dry-run'
option '--save w where rank 0 has none' '--save w'
option '--log log where rank 0 has none' '--log log'
option 'a file for --init yes where rank 0 has no' '--init none'
option 'a file for --init yes where rank 0 has no; --init-partial yes where rank 0 has no' '--init none --init-partial'
option 'a file for --init yes where rank 0 has no; --names hf where rank 0 has none' '--init none --names hf'
option 'a file for --init yes where rank 0 has no; --new-tokens mean where rank 0 has none' '--init none --new-tokens mean'
option 'a file for --init yes where rank 0 has no; a file for --adapter yes where rank 0 has no; --names hf where rank 0 has none' '--init none --names hf --adapter none'
option '--time-limit 60 s where rank 0 has 0 s' '--time-limit 60s'
option '--on-nan skip where rank 0 has not given' '--on-nan skip'
option '--print-every 7 where rank 0 has 0' '--print-every 7'
option '--quiet yes where rank 0 has no' '--quiet'
option '--exact yes where rank 0 has no' '--exact'
option '--repeatable yes where rank 0 has no' '--repeatable'
option '--debug graph-nodes=0 where rank 0 has none' '--debug graph-nodes=0'
option '--trace t.json where rank 0 has none' '--trace t.json'
apart '^zrun: error: rank 1 was given other options: --trace-steps 1 to 2 where rank 0 has 2 to 2$' \
  "$one --trace t.json --trace-steps 2" "$one --trace t.json --trace-steps 1-2"
tried="$tried --trace-steps "
option '--compare-every 7 where rank 0 has 100' '--compare-every 7'
option '--hang-after 60 s where rank 0 has 600 s' '--hang-after 60s'
option '--ckpt c where rank 0 has none' '--ckpt c'
option '--ckpt-every 5 steps, 0 s where rank 0 has 0 steps, 1800 s' '--ckpt-every 5'
option '--ckpt-keep 2 where rank 0 has 0' '--ckpt-keep 2'
option '--ckpt-file-size 5000 where rank 0 has 4000000000' '--ckpt-file-size 5K'
option '--ckpt-fail end where rank 0 has go-on' '--ckpt-fail end'
option '--resume yes where rank 0 has no' '--resume --ckpt c'
option '--resume-from c where rank 0 has none' '--resume-from c'
option '--resume-from c where rank 0 has none; --resume-copy a=b where rank 0 has none' '--resume-from c --resume-copy a=b'
option '--resume-from c where rank 0 has none; --resume-model same where rank 0 has other' '--resume-from c --resume-model same'
option 'a file for --eval yes where rank 0 has no' '--eval text.bin'
for option in --eval-every --eval-batches; do
  tried="$tried $option "
  apart "^zrun: error: rank 1 was given other options: $option 2 where rank 0 has 0$" "$one --eval text.bin" "$one --eval text.bin $option 2"
done
apart '^zrun: error: rank 1 was given other options: the command eval where rank 0 has train; ' \
  "$one --init w" 'zrun eval gpt2.zsg --recipe recipes.zug:two --data text.bin --init w'
tried="$tried --predict "
apart '^zrun: error: rank 1 was given other options: --predict p where rank 0 has none$' \
  "zrun eval gpt2.zsg --recipe recipes.zug:two --data text.bin --init w" "zrun eval gpt2.zsg --recipe recipes.zug:two --data text.bin --init w --predict p"
option '--sample-every 2 where rank 0 has 0; --prompt a where rank 0 has none' '--sample-every 2 --prompt a'
sampled="$one --sample-every 2 --prompt a"
writes() { # PATTERN OPTIONS
  tried="$tried $2"
  apart "^zrun: error: rank 1 was given other options: $1" "$sampled" "$sampled $2"
}
writes '--prompt a b where rank 0 has a$' '--prompt b'
writes '--chat yes where rank 0 has no; --system s where rank 0 has none$' '--chat --system s'
writes 'a file for --tokenizer yes where rank 0 has no$' '--tokenizer none'
writes 'a file for --chat-template yes where rank 0 has no$' '--chat-template none'
writes '--max-tokens 5 where rank 0 has ' '--max-tokens 5'
writes '--temperature 0.5 where rank 0 has 0$' '--temperature 0.5'
writes '--top-k 3 where rank 0 has 0$' '--top-k 3'
writes '--top-p 0.5 where rank 0 has 1$' '--top-p 0.5'
writes '--length 9 where rank 0 has ' '--length 9'
tried="$tried --sample-every --prompt --chat --system --tokenizer "
option '--cluster of a file where rank 0 has none' '--cluster clusters.zug:small'
apart '^zrun: error: rank 1 was given other options: --cluster auto where rank 0 has of a file$' \
  "$one --cluster clusters.zug:small" "$one --cluster auto"
apart '^zrun: error: rank 1 was given other options: -o there.zug where rank 0 has here.zug; --threads 2 where rank 0 has 1$' \
  'zrun calibrate -o here.zug' 'zrun calibrate -o there.zug --threads 2'
apart '^.rank 1. zrun: --threads cannot be .2x.; give a whole number from 1 to 1024$' 'zrun calibrate -o here.zug' 'zrun calibrate -o here.zug --threads 2x'
apart '^zrun: error: rank 1 was given other options: --help yes where rank 0 has no$' "$one" 'zrun --help' # would leave before MPI_Init
apart '^zrun: error: rank 1 was given other options: --version yes where rank 0 has no$' "$one" 'zrun --version'
apart '^zrun: error: rank 1 was given other options: a file for --data no where rank 0 has yes' \
  "$one --dry-run" 'zrun train gpt2.zsg --recipe recipes.zug:two --steps 2 --dry-run'
apart '^zrun: error: rank 1 was given other options: --seed 2 where rank 0 has 1; --threads 3 where rank 0 has 1$' \
  "$one" "$one --seed 2 --threads 3"
# --device: a machine may have but one. -I and the files of --recipe and --data may be elsewhere, see below.
tried="$tried --new-tokens --resume-copy --resume-model --version --help --device -I -o --recipe --data "
# Those of `zrun generate` alone are for one rank.
for option in $(for command in train eval calibrate; do zrun --complete $command x; done | grep "^-" | sort -u); do
  case "$tried" in *" $option "*) ;; *) fail "is $option the same on all ranks? it is not tried here" ;; esac
done

# ---- the recipe ----
recipe() { # PATTERN SED-SCRIPT: of rank 1's
  sed "$2" recipes.zug >edited.zug
  cmp -s recipes.zug edited.zug && fail "nothing is edited by $2"
  apart "^zrun: error: rank 1 was given another recipe: $1$" "$one" "$(echo "$one" | sed s/recipes.zug/edited.zug/)"
}
recipe 'lr 0.02 where rank 0 has 0.01' 's/lr = 0.01/lr = 0.02/'
recipe 'warmup 4 where rank 0 has 3' 's/warmup = 3/warmup = 4/'
recipe 'decay 0.2 where rank 0 has 0.1; except none where rank 0 has norm' 's/decay 0.1 except norm/decay 0.2/'
recipe 'clip 1 where rank 0 has 0.5' 's/clip 0.5/clip 1/'
recipe 'micro 1 where rank 0 has none; lr 1 where rank 0 has 0.01; warmup 1 where rank 0 has 3; decay 0 where .* 0.1; and 2 more' \
  's/lr = 0.01, warmup = 3/lr = 1, warmup = 1/; s/decay 0.1 except norm/micro 1/; s/clip 0.5/clip 1/'
sed 's/a = 2, b = 2 /b = 2, a = 2 /' recipes.zug >edited.zug
four="zrun train gpt2.zsg --recipe recipes.zug:four --data text.bin --steps 2"
edited="zrun train gpt2.zsg --recipe edited.zug:four --data text.bin --steps 2"
apart '^zrun: error: ranks 1, 3 were given another recipe: mesh data = 1, b = 2, a = 2 where rank 0 has data = 1, a = 2, b = 2$' \
  "$four" "$edited" "$four" "$edited"
apart '^zrun: error: rank 2 was given other options: --seed 7 where rank 0 has 1$' "$four" "$four --times" "$four --seed 7" "$four"
says '^zrun: error: rank 1 was given other options: --times yes where rank 0 has no$'
# Many ranks, and long values, in few words.
apart '^zrun: error: 1 more rank differs from rank 0 in other ways$' \
  "$one" "$one --seed 2" "$one --seed 3" "$one --seed 4" "$one --seed 5" "$one --seed 6"
[ "$(grep -c '^zrun: error' out.txt)" -eq 5 ] || { cat out.txt; fail "not five lines"; }
long=$(printf '%0100d' 0)
apart '^zrun: error: rank 1 was given other options: --log ...0*b where rank 0 has ...0*a$' "$one --log ${long}a" "$one --log ${long}b"
apart '^zrun: error: rank 1 was given another cluster: name large where rank 0 has small; device memory 2000000000 B' \
  "$one --cluster clusters.zug:small" "$one --cluster clusters.zug:large"

# ---- files ----
apart '^zrun: error: rank 1 was given another stage graph: hash [0-9a-f]* where rank 0 has ' "$one" "zrun train other.zsg $run"
apart "^zrun: error: rank 1 was given other data: content's checksum [0-9a-f]* where rank 0 has " \
  "$one" "$(echo "$one" | sed s/text.bin/text2.bin/)"
{ head -c 500 text.bin; printf '~'; tail -c +502 text.bin; } >bad.bin
[ "$(wc -c <text.bin)" -eq "$(wc -c <bad.bin)" ] || fail "this test's own tool is broken"
apart '^.rank 1. error: bad.bin is damaged: the checksum of its tokens differs' "$one" "$(echo "$one" | sed s/text.bin/bad.bin/)"
apart "^zrun: error: rank 1 was given other held-out data: content's checksum [0-9a-f]* where rank 0 has " \
  "$one --eval text.bin" "$one --eval text2.bin"
ok $MPIRUN -np 2 $one --save w.safetensors
ok $MPIRUN -np 2 $one --save w2.safetensors --seed 2
[ "$(wc -c <w.safetensors)" -eq "$(wc -c <w2.safetensors)" ] || fail "weights of other sizes"
apart "^zrun: error: rank 1 was given other initial weights: content's checksum [0-9a-f]* where rank 0 has " \
  "$one --init w.safetensors" "$one --init w2.safetensors"
apart '^zrun: error: rank 1 was given other data: tokens 9 where rank 0 has 2000' "$one" "$(echo "$one" | sed s/text.bin/short.bin/)"
# What is wrong on one rank alone is said by that one.
apart '^.rank 1. error: cannot open none.zsg' "$one" "zrun train none.zsg $run"
apart '^.rank 1. error: cannot open none.bin' "$one" "$(echo "$one" | sed s/text.bin/none.bin/)"
apart '^.rank 1. error.Z0004.: cannot open none.zug' "$one" "$(echo "$one" | sed s/recipes.zug/none.zug/)"
apart '^.rank 1. error: cannot open none.safetensors' "$one --init w.safetensors" "$one --init none.safetensors"
apart "^.rank 1. zrun: unrecognized option '--foo'" "$one" "$one --foo"
apart '^.rank 1. zrun: zrun has no command .trian.; did you mean .train.' "$one" "zrun trian gpt2.zsg $run"
# Copies elsewhere are the same files.
mkdir -p copy/shared
cp gpt2.zsg recipes.zug text.bin w.safetensors copy
started "$one --init w.safetensors" \
  "zrun train copy/gpt2.zsg --recipe copy/recipes.zug:two -I copy/shared --data copy/text.bin --init copy/w.safetensors --steps 2"
launch || { cat out.txt; fail "copies are not believed"; }

# ---- programs ----
{ cat "$(command -v zrun)" && echo; } >zrun2
chmod +x zrun2
apart "^zrun: error: rank 1 runs another build: program's checksum [0-9a-f]* where rank 0 has " "$one" "./zrun2 train gpt2.zsg $run"
ok $MPIRUN -np 2 zrun --help
[ "$(grep -c '^usage' out.txt)" -eq 1 ] || { cat out.txt; fail "help from every rank"; }
refuses '^.rank 1. error: the launcher started 2 processes, and MPI knows of this one alone' \
  env SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 $one

# Other instructions round otherwise, which is no mistake. OpenBLAS can be told to use those of a Prescott; one that was built
# for a single CPU cannot, and on an old CPU it uses them anyway.
means() { sed -n 's/^model .* micro-batches; //p' out.txt; }
ok $MPIRUN -np 2 env OPENBLAS_CORETYPE=Prescott $one
prescott=$(means)
[ "$prescott" ] || { cat out.txt; fail "nothing is said of what computes"; }
started "$one" "env OPENBLAS_CORETYPE=Prescott $one"
launch || { cat out.txt; fail "other instructions are not believed"; }
if [ "$(means)" != "$prescott" ]; then
  says '^note: sums will be rounded differently: rank 1 computes by other means: device .* where rank 0 has '
else
  grep 'computes by other means' out.txt && fail "the same instructions are said to be others"
fi

wait $beside
cp beside/out.txt out.txt
says 'MPI_Init waits since 10 s for ranks that have not called it'
exit 0
