# What goes wrong says so: one clear message, from one rank, and the job ends with an exit code that is not 0.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

cat >recipes.zug <<'END'
recipe one {
  optimizer sgd(lr = 0.1)
  bind batch = 4, seq = 16
}
recipe two      from one { mesh data = 2   split batch over data }
recipe tensor   from one { mesh tensor = 2   split head, ffn, vocab over tensor }
recipe other for Llama3 from two { }
recipe unknown  from two { split batchs over data }
recipe divide   from one { mesh tensor = 2   split hd, vocab over tensor }
recipe batch    from two { micro 3 }
recipe nothing  from one { mesh data = 2 }
recipe narrow   from two { limit memory 10 kB }
recipe long     from two { bind seq = 32 }
recipe huge     from one { bind batch = 100000000, seq = 16 }
END
echo 'recipe alone { mesh data = 2   split batch over data   optimizer sgd(lr = 0.1)   bind batch = 4, seq = 16 }' >alone.zug
echo 'recipe two {' >syntax.zug
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
small='-D layers=2 -D heads=2 -D width=8 -D context=16'
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg $small -D words=128
ok zc "$ZUG_SRC/examples/gpt2.zug" -o few.zsg $small -D words=105
ok zc "$ZUG_SRC/examples/gpt2.zug" -o odd.zsg $small -D words=127
printf 'too short' >short.txt
ok zdata pack short.txt -o short.bin
mkdir folder

# wrong NP PATTERN ARGUMENT...: zrun must refuse it as a mistake, and say what matches PATTERN once.
wrong() { once mistake "$@"; }
once() { # HOW NP PATTERN ARGUMENT...
  how=$1 np=$2 pattern=$3
  shift 3
  $how "$pattern" timeout -k 5 30 $(on "$np") zrun "$@"
  [ "$(grep -Ec -- "$pattern" out.txt)" -eq 1 ] || { cat out.txt; fail "said more than once: $*"; }
}
two="--recipe recipes.zug:two"
run="$two --data text.bin --steps 2"

# ---- the command line ----
wrong 2 'zrun has no command .gpt2.zsg.; there are train, eval, generate, serve and calibrate' gpt2.zsg $run
wrong 2 'zrun train needs --recipe FILE:NAME' train gpt2.zsg --data text.bin --steps 1
wrong 2 'zrun train needs --steps K' train gpt2.zsg $two --data text.bin
wrong 2 '--steps cannot be .-1.; give a whole number from 0 on' train gpt2.zsg $two --data text.bin --steps -1
wrong 2 '--seed cannot be .1x.' train gpt2.zsg $run --seed 1x
wrong 2 '--device cannot be .gpu.' train gpt2.zsg $run --device gpu
wrong 2 'device: (there is no CUDA device here: |this build has no CUDA;)' train gpt2.zsg $run --device cuda
wrong 2 "unrecognized option '--foo'" train gpt2.zsg $run --foo
wrong 2 "option '--seed' requires an argument" train gpt2.zsg $run --seed

# ---- the number of ranks, and what a recipe asks of a model ----
wrong 3 'recipe two is for 2 ranks \(data = 2\); mpirun started 3' train gpt2.zsg $run
says 'mpirun -np 2 zrun'
wrong 2 'Z0310|recipe one is for 1 rank ' train gpt2.zsg --recipe recipes.zug:one --data text.bin --steps 1
wrong 3 'mpirun started 3 ranks, and there is no recipe for that: one is for 1, two is for 2, tensor is for 2 \[Z0310\]' \
  train gpt2.zsg --recipe recipes.zug:one,two,tensor --data text.bin --steps 1
wrong 2 'error\[Z0801\]: no recipe `tow`' train gpt2.zsg --recipe recipes.zug:two,tow --data text.bin --steps 1
wrong 2 'error\[Z0801\]: no recipe ``' train gpt2.zsg --recipe recipes.zug:two, --data text.bin --steps 1
wrong 2 'error\[Z0810\]: recipe other is for model Llama3; this stage graph is model GPT2' \
  train gpt2.zsg --recipe recipes.zug:other --data text.bin --steps 1
wrong 2 'error\[Z0304\]: no axis `batchs`' train gpt2.zsg --recipe recipes.zug:unknown --data text.bin --steps 1
says 'did you mean `batch`'
wrong 2 'error\[Z0301\]: axis `vocab` \(127\) does not divide over `tensor` \(2\)' \
  train odd.zsg --recipe recipes.zug:tensor --data text.bin --steps 1
wrong 2 'error\[Z0403\]: global batch 4 is not a multiple' train gpt2.zsg --recipe recipes.zug:batch --data text.bin --steps 1
wrong 2 'error\[Z0306\]: mesh dimension `data`' train gpt2.zsg --recipe recipes.zug:nothing --data text.bin --steps 1
wrong 2 'error\[Z0501\]: .* limit is 10' train gpt2.zsg --recipe recipes.zug:narrow --data text.bin --steps 1
wrong 2 'error\[Z0801\]' train gpt2.zsg --recipe recipes.zug --data text.bin --steps 1
says 'it has `one`, `two`'
wrong 2 'error\[Z0801\]: no recipe `tow`' train gpt2.zsg --recipe recipes.zug:tow --data text.bin --steps 1
ok $MPIRUN -np 2 zrun train gpt2.zsg --recipe alone.zug --data text.bin --steps 1 # of a single one the name is not needed
wrong 2 'error\[Z0001\]' train gpt2.zsg --recipe syntax.zug:two --data text.bin --steps 1

# ---- files that are not there, or not what they should be ----
for file in none.zsg folder text.bin; do
  wrong 2 "error: .*$file" train $file $run
done
wrong 2 'error\[Z0004\]: .*none.zug' train gpt2.zsg --recipe none.zug:two --data text.bin --steps 1
wrong 2 'error\[Z0004\]: .*folder' train gpt2.zsg --recipe folder:two --data text.bin --steps 1
wrong 2 'cannot open none.bin: No such file' train gpt2.zsg $two --data none.bin --steps 1
wrong 2 'folder is a folder without .bin files' train gpt2.zsg $two --data folder --steps 1
wrong 2 'gpt2.zsg is not a token file' train gpt2.zsg $two --data gpt2.zsg --steps 1
wrong 2 'cannot open none.safetensors: No such file' train gpt2.zsg $run --init none.safetensors
wrong 2 'folder is not a complete checkpoint: cannot open folder.manifest.json' train gpt2.zsg $run --init folder
wrong 2 'text.bin is not a safetensors file' train gpt2.zsg $run --init text.bin

# ---- truncated and altered files ----
altered() { # FILE BYTE OUT: one bit of one byte flipped
  { head -c "$2" "$1"
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    printf "\\$(printf %o $((byte ^ 4)))"
    tail -c "+$(($2 + 2))" "$1"; } >"$3"
  [ "$(wc -c <"$1")" -eq "$(wc -c <"$3")" ] || fail "this test's own tool is broken"
  cmp -s "$1" "$3" && fail "this test's own tool is broken"
}
bytes=$(wc -c <gpt2.zsg)
head -c $((bytes - 1)) gpt2.zsg >cut.zsg
wrong 2 'error: .*cut.zsg' train cut.zsg $run
head -c 10 gpt2.zsg >cut.zsg
wrong 2 'error: .*cut.zsg' train cut.zsg $run
for at in 0 4 8 16 24 40 $((bytes / 3)) $((bytes / 2)) $((bytes - 1)); do
  altered gpt2.zsg $at bad.zsg
  refuses 'error: .*bad.zsg' zplan check bad.zsg --recipe recipes.zug:two
done
wrong 2 'error: .*bad.zsg' train bad.zsg $run
head -c 1000 text.bin >cut.bin
wrong 2 'cut.bin is truncated' train gpt2.zsg $two --data cut.bin --steps 1
altered text.bin 16 bad.bin
wrong 2 'bad.bin: its header is damaged' train gpt2.zsg $two --data bad.bin --steps 1

# ---- data that do not fit ----
mistake "error: text.bin: its largest id in 'tokens' is 122" timeout 30 $MPIRUN -np 2 zrun train few.zsg $run
says 'the model knows 0 to 104'
wrong 2 'error: .*short.bin' train gpt2.zsg $two --data short.bin --steps 1
printf '1,2,a\n3,4,b\n' >table.csv
ok zdata table table.csv --label 3 -o table.bin
wrong 2 'error: .*table.bin' train gpt2.zsg $two --data table.bin --steps 1
wrong 2 'error\[Z0805\]: `seq` has 32 elements, `pos` has 16' train gpt2.zsg --recipe recipes.zug:long --data text.bin --steps 1

# ---- memory ----
ok zc "$ZUG_SRC/examples/gpt2.zug" -o wide.zsg -D layers=2 -D heads=2 -D width=64 -D context=16 -D words=128
once breaks 1 'cannot allocate the arena of .* TB.*; stage 0 needs .*activations .* TB.*; `recompute` a block, or a smaller `micro`' \
  train wide.zsg --recipe recipes.zug:huge --data text.bin --steps 1 --device cpu

# ---- weights of another model, cut or altered weights ----
ok $MPIRUN -np 2 zrun train gpt2.zsg $run --save w.safetensors
ok $MPIRUN -np 2 zrun train gpt2.zsg $run --init w.safetensors
ok zc "$ZUG_SRC/examples/llama3.zug" -o llama3.zsg -D layers=2 -D heads=2 -D kv_heads=2 -D width=8 -D inner=16 -D words=128
wrong 2 "w.safetensors: tensor 'layer.0.attn.wq' has shape" train llama3.zsg $run --init w.safetensors
wrong 2 "w.safetensors: tensor 'wte' has shape \[128, 8\]; the model wants \[127, 8\]" train odd.zsg $run --init w.safetensors
head -c 5000 w.safetensors >cut.safetensors
wrong 2 'cut.safetensors.*(outside|truncated)' train gpt2.zsg $run --init cut.safetensors

# ---- places that cannot be written ----
wrong 2 'cannot make the log folder text.bin/log' train gpt2.zsg $run --log text.bin/log
wrong 2 'text.bin.*(Not a directory|exists)' train gpt2.zsg $run --log text.bin
wrong 2 'cannot create none/w.safetensors' train gpt2.zsg $run --save none/w.safetensors
grep -q '^step 1' out.txt && fail "a run whose result cannot be saved should not start"
wrong 2 'folder exists and is not a file' train gpt2.zsg $run --save folder
grep -q '^step 1' out.txt && fail "a run whose result cannot be saved should not start"

# ---- a full disk ----
if [ -w /dev/full ]; then
  breaks 'cannot write to the standard output' sh -c 'zrun --help >/dev/full'
  breaks 'cannot write to the standard output' sh -c \
    'zrun train gpt2.zsg --recipe recipes.zug:one --data text.bin --steps 1 --dry-run >/dev/full'
  mkdir full && ln -s /dev/full full/metrics.jsonl
  ok $MPIRUN -np 2 zrun train gpt2.zsg $run --log full
  [ "$(grep -c '^note: step 1: cannot write full/metrics.jsonl: No space left' out.txt)" -eq 1 ] || { cat out.txt; fail "a full disk is not said once"; }
fi
cp w.safetensors old.safetensors
mistake 'cannot write w.safetensors: File too large' \
  sh -c "ulimit -f 8; exec zrun train gpt2.zsg --recipe recipes.zug:one --data text.bin --steps 1 --save w.safetensors"
cmp w.safetensors old.safetensors || fail "a failed save spoils the file before it"
ls w.safetensors.*tmp 2>/dev/null && fail "a failed save leaves something"

# ---- what may pass: too few descriptors, wherever they end, are not a mistake, after which a supervisor would give up ----
ok zrun train gpt2.zsg --recipe recipes.zug:one --data text.bin --steps 1 --ckpt few
codes=
for most in 4 5 6 7 8 9 10 12 30; do
  (ulimit -n $most && exec zrun train gpt2.zsg --recipe recipes.zug:one --data text.bin --steps 2 --ckpt few --resume) >out.txt 2>&1
  codes="$codes $? "
  grep 'remove it' out.txt && { cat out.txt; fail "advice to remove what was not read"; }
done
case $codes in *' 2 '*) fail "with few descriptors a run is a mistake: $codes" ;; esac
case $codes in *' 1 '*' 0 '*) ;; *) fail "codes $codes" ;; esac

# ---- a killed rank ----
$MPIRUN -np 2 zrun train gpt2.zsg $two --data text.bin --steps 10000000 --log killed >out.txt 2>&1 &
job=$!
trap 'kill $job 2>/dev/null' EXIT
tries=0
until [ -s killed/metrics.jsonl ]; do
  sleep 0.1
  tries=$((tries + 1))
  [ $tries -lt 300 ] || { cat out.txt; fail "the ranks do not start"; }
done
for process in /proc/[0-9]*; do
  [ "$(awk '{ print $4 }' "$process/stat" 2>/dev/null)" = "$job" ] || continue
  tr '\0' '\n' <"$process/environ" | grep -qx 'OMPI_COMM_WORLD_RANK=1' && kill -KILL "${process#/proc/}" && killed=yes
done
[ "$killed" ] || { kill "$job"; fail "rank 1 is not found"; }
start=$(date +%s)
wait $job && fail "a killed rank is no success"
[ $(($(date +%s) - start)) -le 10 ] || fail "the job outlives its rank"
says_broken 'process rank 1 .*exited on signal 9'
exit 0
