# zckpt: what is in checkpoints, how far they are from each other, their parameters alone; and every way in which one may
# be broken, by the name of the file and what was found in it.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

cat >recipes.zug <<'END2'
recipe one {
  bind batch = 8, seq = 16
  micro 2
  optimizer adamw(lr = 0.01)
}
recipe zero_2 from one { mesh data = 2   split batch over data   shard states over data }
recipe sgd from one { optimizer sgd(lr = 0.1) }
recipe part from one { freeze wte }
END2
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=2 -D heads=2 -D width=16 -D context=16 -D words=128
ok zc "$ZUG_SRC/examples/gpt2.zug" -o wide.zsg -D layers=1 -D heads=2 -D width=32 -D context=16 -D words=128
train() { # GRAPH RECIPE STEPS DIR OPTION...
  graph=$1 recipe=$2 steps=$3 dir=$4
  shift 4
  case $recipe in *_2) ranks=2 ;; *) ranks=1 ;; esac
  ok timeout -k 5 60 $(on $ranks) zrun train "$graph.zsg" --recipe "recipes.zug:$recipe" --data text.bin --steps "$steps" \
    --ckpt "$dir" --ckpt-file-size 20K --ckpt-every 1000 "$@"
}
train gpt2 one 2 kept
train gpt2 zero_2 5 kept --resume --save saved.safetensors
train gpt2 one 2 seed --seed 2
train gpt2 sgd 2 sgd
train wide sgd 1 wide
train gpt2 part 1 part
two=kept/step-00000002 five=kept/step-00000005

# ---- which there are, what is in one ----
ok zckpt list kept
says "^$two  .*  step 2, 16 samples  116.1 kB  model GPT2$"
says "^$five  .*  step 5, 40 samples  116.1 kB  model GPT2$"
says "^the latest that is complete: $five$"
ok zckpt show $five/
says "^$five: step 5, 40 samples; model GPT2; written 20[0-9-]* [0-9:]* by zug [0-9.]*$"
says '^36 parameters of 8896 values; states: exp_avg, exp_avg_sq; 116.1 kB in 6 files:$'
says '^  model-00002-of-00002.safetensors  18.0 kB  10 tensors$'
says '^    zrun train gpt2.zsg --recipe recipes.zug:zero_2 --data text.bin --steps 5 --ckpt kept'
says '^options: --seed 1; --order shuffled$'
says '^    recipe sgd from one'
grep -q checksum.*model-00001 out.txt && fail "tensors were not asked for"
ok zckpt show $five --tensors
says '^  layer.1.attn.wq \[16, 2, 8\]  model-00001-of-00002.safetensors  checksum [0-9a-f]*$'
ok zckpt show sgd/step-00000002
says '^36 parameters of 8896 values; states: none; '
ok zckpt verify $five
says "^$five: as it was written: step 5, 36 parameters with 2 states each, 116.1 kB in 6 files$"
ok zckpt verify sgd/step-00000002
says ', 36 parameters with 0 states each, '
ok zckpt verify part/step-00000001
says ', 36 parameters with up to 2 states each, '

# ---- parameters alone: the file that --save writes ----
ok zckpt weights $five -o weights.safetensors
says '^weights.safetensors: the 36 parameters of step 5$'
cmp weights.safetensors saved.safetensors || fail "other parameters than those saved"
ok zckpt weights $two --output two.safetensors
train gpt2 one 0 begun --init weights.safetensors

# ---- how far they are apart ----
differs() { # OPTION...: exit code 1
  zckpt diff "$@" >out.txt 2>&1
  code=$?
  [ $code -eq 1 ] || { cat out.txt; fail "exit code $code from: zckpt diff $*"; }
}
ok zckpt diff $two $two --states
says '^108 of 108 tensors are the same$'
differs $two $five --top 100
says '^step 2 and 5, samples 16 and 40$'
says '^ *rel. norm +max .b-a.  '
says '^0 of 36 tensors are the same$'
cp out.txt all.txt
[ "$(grep -c '^ .* .*\[' all.txt)" -eq 36 ] || { cat all.txt; fail "not 36 lines"; }
awk '/^ .*\[/ { if (last && $1 > last) bad = 1; last = $1 } END { exit bad }' all.txt || fail "not in the order of their norms"
# By hand: `wpe` of both, from the files of its own.
values() { # FILE
  head=$(od -An -t u8 -N 8 "$1")
  at=$(head -c $((head + 8)) "$1" | grep -ao '"wpe":{[^}]*"data_offsets":\[[0-9]*' | grep -o '[0-9]*$')
  od -An -v -t f4 -w4 -j $((head + 8 + at)) -N 1024 "$1"
}
values two.safetensors >a.txt
values weights.safetensors >b.txt
paste a.txt b.txt | awk -v line="$(grep ' wpe\[' all.txt)" '
  { d = $2 - $1; sum += d * d; base += $1 * $1; if (d < 0) d = -d; if (d > most) { most = d; at = NR - 1 } }
  function near(x, y) { return x ~ /^[0-9]/ && (x - y) ^ 2 <= 1e-6 * y ^ 2 } # four digits are printed: 1e-3
  END { split(line, got)
    exit !(NR == 256 && near(got[1], sqrt(sum / base)) && near(got[2], most) && got[3] " " got[4] == sprintf("wpe[%d, %d]", at / 16, at % 16)) }' ||
  { grep ' wpe\[' all.txt; fail "wpe differs otherwise"; }
differs $two $five --top 3
says '^\.\.\. and 33 more: --top$'
differs $two $five --states --top 0
says '^0 of 108 tensors are the same$'
differs $two seed/step-00000002
says '^options: --seed 1 and 2$'
differs $two sgd/step-00000002 --states
says '^recipe: optimizer adamw and sgd$'
says "^only in $two: wpe.exp_avg \[16, 16\]$"
differs $two wide/step-00000001
says "^only in $two: layer.1.attn.wq \[16, 2, 8\]$"
says '^wte has other shapes: \[128, 16\] and \[128, 32\]$'

# ---- values that are not finite come first; those of the same bits are no difference ----
cp -r kept odd
odd=odd/step-00000005
ok "$ZUG_BUILD/tests/scenarios/tools/alter_ckpt" $odd wpe 17 nan 0.5 inf
ok zckpt verify $odd
differs $two $odd --top 1
says '^ .* wpe\[1, 1\]  not finite in one of them: 2 values$'
differs $five $odd
says '^ .* wpe\[1, 1\]  not finite in one of them: 2 values$'
says '^35 of 36 tensors are the same$'
cp -r odd other
ok "$ZUG_BUILD/tests/scenarios/tools/alter_ckpt" other/step-00000005 wpe 18 0.75
differs $odd other/step-00000005
says '^ .* 0.25  wpe\[1, 2\]$'

# ---- broken ones: everything that is wrong is said ----
broken() { # makes a copy to break
  rm -rf broken
  cp -r kept broken
  bad=broken/step-00000005
}
wrong() { # PATTERN...: that verify says
  refuses "error: $bad is not as it was written" zckpt verify $bad
  for pattern; do says "^wrong: $pattern"; done
  [ "$(grep -c '^wrong' out.txt)" -eq $# ] || { cat out.txt; fail "not $# lines"; }
}
flip() { # FILE AT: a byte
  byte=$(od -An -t u1 -j "$2" -N 1 "$1")
  printf "\\$(printf %o $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>dd.txt
}
one=model-00001-of-00002.safetensors last=optimizer-00004-of-00004.safetensors
broken && rm $bad/$one && wrong "checkpoint $bad: cannot open $bad/$one: No such file"
refuses "cannot open $bad/$one: No such file" zckpt weights $bad -o w.safetensors
refuses "cannot open $bad/$one: No such file" zckpt diff $two $bad
broken && head -c 20000 $five/$one >$bad/$one && wrong "$bad/$one has 20000 bytes; its manifest says 20480"
broken && flip $bad/$one 20479 && wrong "$bad/$one is altered: the checksum of tensor '.*' is [0-9a-f]*, its manifest says"
refuses "is altered: the checksum of tensor" zckpt weights $bad -o saved.safetensors
cmp weights.safetensors saved.safetensors || fail "a good file was replaced"
refuses "$bad/$one is altered: the checksum of tensor" zckpt diff $two $bad
refuses "$bad/$one is altered: the checksum of tensor" zckpt diff $bad $two
broken && flip $bad/$one 20 && wrong "$bad/$one is altered: its header is another than"
broken && cp $bad/$one "$bad/model-00001 (copy).safetensors" && wrong "$bad/model-00001 \(copy\).safetensors is a second $one"
broken && cp two.safetensors $bad && wrong "$bad/two.safetensors is none of this checkpoint's files"
broken && cp $two/$one $bad/$one && wrong "$bad/$one is altered: the checksum of tensor 'wte'" "" "" "" "" "" "" "" '\.\.\. and 18 more tensors'
broken && flip $bad/manifest.json 200
refuses "error: $bad/manifest.json: its checksum is [0-9a-f]*, and it says [0-9a-f]*; is it altered" zckpt verify $bad
rm $bad/manifest.json
refuses "error: $bad is not a complete checkpoint: cannot open $bad/manifest.json" zckpt verify $bad
broken && sed -i 's/"wpe":"model-00001/"wpe":"model-00002/' $bad/model.safetensors.index.json &&
  wrong "$bad/model.safetensors.index.json: tensor 'wpe' is said to be in model-00002-of-00002.safetensors; it is in $one"
index() { # a change of the index of parameters
  broken && sed -i "$1" $bad/model.safetensors.index.json
}
index 's/"wpe":"[^"]*"/"wpe":7/' && wrong "$bad/model.safetensors.index.json: tensor 'wpe' is said to be in no file; it is in $one"
index 's/"wpe":"[^"]*",//' && wrong "$bad/model.safetensors.index.json: '.*' stands where 'wpe' should"
index 's/"weight_map":{/"weight_map":7,"map":{/' &&
  wrong "$bad/model.safetensors.index.json: 'nothing' stands where 'wte' should"
index "s/\"wpe\":\"[^\"]*\"/&,&/" && wrong "$bad/model.safetensors.index.json: 'wpe' stands where"
index 's/"}}$/","more":"x"}}/' && wrong "$bad/model.safetensors.index.json: tensor 'more' is none of this checkpoint's"
index 's/}$//' && wrong "$bad/model.safetensors.index.json: it is not JSON"
index 's/"total_size":/&1/' && wrong "$bad/model.safetensors.index.json: byte 26 is not as it was written"
broken && head -c 99999 /dev/zero >>$bad/model.safetensors.index.json &&
  wrong "$bad/model.safetensors.index.json has [0-9]* bytes; at most [0-9]* are read"
broken && rm $bad/optimizer.safetensors.index.json && wrong "cannot open $bad/optimizer.safetensors.index.json"
broken && mv $bad broken/step-00000006 && bad=broken/step-00000006 &&
  wrong "$bad is by its manifest the checkpoint of step 5: a copy, or renamed"
broken && rm $bad/$one && flip $bad/$last 17000 && cp two.safetensors $bad &&
  wrong "checkpoint $bad: cannot open" "$bad/$last is altered" "$bad/two.safetensors is none of"
broken && echo mine >$bad/notes.txt && ok zckpt verify $bad
says "^note: $bad/notes.txt is none of this checkpoint's files$"

# ---- a folder with broken and unfinished ones ----
broken && rm $bad/$one && cp -r $two broken/step-00000009 && mkdir broken/step-00000007.1-2.tmp
ok zckpt list broken
says "^broken/step-00000005  broken: checkpoint .*$one: No such file"
says '^broken/step-00000009  broken: by its manifest that of step 2: a copy, or renamed$'
says '^broken/step-00000007.1-2.tmp  unfinished: '
says '^the latest that is complete: broken/step-00000002$'
rm broken/step-00000002/$one
refuses 'broken holds no complete checkpoint' zckpt list broken
mkdir empty
refuses 'empty holds no checkpoint; it should be|empty holds no checkpoint$' zckpt list empty
refuses 'cannot open none: No such file' zckpt list none
refuses 'text.bin: Not a directory' zckpt list text.bin
refuses 'kept is not a checkpoint: it holds 2 of them' zckpt show kept
says "^help: the latest is $five$"
refuses 'none is not a complete checkpoint: cannot open none/manifest.json' zckpt show none

# ---- tensors of 25 MB by a process of 24 MB ----
if (ulimit -v 24000 && zckpt --help) >/dev/null 2>&1; then # not with sanitizers
  ok zc "$ZUG_SRC/examples/gpt2.zug" -o large.zsg -D layers=1 -D heads=2 -D width=64 -D context=16 -D words=100000
  train large sgd 1 large
  train large sgd 2 large --resume
  first=large/step-00000001 second=large/step-00000002
  little() { sh -c 'ulimit -v 24000; exec zckpt "$@"' little "$@"; }
  ok little verify $first
  ok little weights $first -o large.safetensors
  little diff $first $second --top 100 >out.txt 2>&1
  [ $? -eq 1 ] && says '^ .* wte\[[0-9]*, [0-9]*\]$' || { cat out.txt; fail "zckpt diff in little memory"; }
fi

# ---- outputs and options ----
refuses "-o $five/w.safetensors lies in $five, from which it is made" zckpt weights $five -o $five/w.safetensors
(cd $five && refuses '-o model-00001-of-00002.safetensors lies in ., from which' zckpt weights . -o $one) || exit 1
ok zckpt verify $five
echo text >text
refuses 'text exists and is not a safetensors file: it is not replaced' zckpt weights $five -o text
refuses 'cannot create none/w' zckpt weights $five -o none/w
refuses 'zckpt weights needs -o OUT' zckpt weights $five
refuses 'zckpt diff takes 2 operands \(CKPT CKPT\), not 1' zckpt diff $five
refuses 'zckpt show takes 1 operand \(CKPT\), not 2' zckpt show $five $two
refuses 'zckpt show takes no option --top' zckpt show $five --top 3
refuses 'zckpt list takes no option --output' zckpt list kept -o x
refuses "--top cannot be 'x'" zckpt diff $two $five --top x
refuses 'zckpt export needs --names MAP' zckpt export weights.safetensors -o out
refuses 'zckpt export needs --names MAP' zckpt export weights.safetensors -o out --shard-size 5G
refuses "--dtype cannot be 'f64'" zckpt export weights.safetensors -o out --names hf --dtype f64
refuses "--shard-size cannot be 'x'" zckpt export weights.safetensors -o out --names hf --shard-size x
refuses "zckpt has no command 'verfiy'" zckpt verfiy $five
says "^help: did you mean 'verify'\?$"
refuses "unrecognized option '--state'|ambiguous|--foo" zckpt diff $two $five --foo
refuses '^zckpt: look at checkpoints' zckpt
ok zckpt --help
says '^       zckpt weights CKPT -o OUT'
exit 0
