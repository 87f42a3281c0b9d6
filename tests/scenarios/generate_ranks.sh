# zrun generate on several ranks: the same tokens and log-probabilities as on one, bit for bit, in every layout; what a
# layout needs is said by zplan; what is wrong, and what is left where a run ends early.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

# ---- a model of bytes that has learned one text by heart ----
cat >r.zug <<'END'
recipe learn { bind batch = 8, seq = 32   optimizer adamw(lr = 1e-2, b2 = 0.95) }
recipe one { bind batch = 6, seq = 64 }
recipe one_half { bind batch = 6, seq = 64   precision compute bf16 }
recipe t2 from one { mesh tensor = 2   split head, ffn, vocab over tensor else seq }
recipe p2 from one { mesh pipe = 2   stages over pipe by cost }
recipe d2 from one { mesh data = 2   split batch over data }
recipe dt from one { mesh data = 2, tensor = 2   split batch over data   split head, ffn, vocab over tensor }
recipe t2_half from one_half { mesh tensor = 2   split head, ffn, vocab over tensor }
recipe t8 from one { mesh tensor = 8   split head, ffn, vocab over tensor }
recipe t8_half from one_half { mesh tensor = 8   split head, ffn, vocab over tensor }
recipe pt from one { mesh pipe = 2, tensor = 2   split head, ffn, vocab over tensor   stages over pipe by cost }
recipe pt4 from one { mesh pipe = 2, tensor = 4   split head, ffn, vocab over tensor   stages over pipe by cost }
recipe pdt from one { mesh pipe = 2, data = 2, tensor = 2   split batch over data   split head, ffn, vocab over tensor   stages over pipe by cost }
recipe p4 from one { mesh pipe = 4   stages over pipe by cost }
recipe seq2 from one { mesh seq = 2   split seq over seq }
END
for i in $(seq 200); do printf 'the cat sat on the mat. '; done >text
ok zdata pack text -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -q -D layers=4 -D heads=8 -D width=64 -D context=64 -D words=256
ok timeout -k 5 100 zrun train gpt2.zsg --recipe r.zug:learn --data text.bin --steps 40 --save w.safetensors --quiet

for i in $(seq 24); do
  echo "{\"prompt\": \"$(printf 'the cat sat on the mat. ' | head -c $((i % 20 + 1)))\", \"max_tokens\": $((i % 13 + 1)), \"logprobs\": 2}"
done >in.jsonl
sed -n '7!d; s/}$/, "temperature": 1, "seed": 5, "n": 2, "top_p": 0.9}/p' in.jsonl >>in.jsonl

gen() { # RANKS RECIPE OPTION...
  n=$1 recipe=$2
  shift 2
  timeout -k 5 60 $(on $n) zrun generate gpt2.zsg --init w.safetensors --recipe r.zug:$recipe --threads 1 "$@"
}
# same RANKS RECIPE [AS]: results of that layout are those of one rank.
same() {
  rm -f $2.jsonl
  gen $1 $2 --quiet --prompts in.jsonl -o $2.jsonl || fail "code $? of $2"
  cmp ${3-one}.jsonl $2.jsonl || fail "$2: other results than one rank's"
}
gen 1 one --quiet --prompts in.jsonl -o one.jsonl || fail "one rank"
[ "$(wc -l <one.jsonl)" -eq 25 ] || fail "$(wc -l <one.jsonl) results of 25 lines"
same 2 t2
same 2 p2
same 2 d2
same 4 pt
if at_night; then
  gen 1 one_half --quiet --prompts in.jsonl -o one_half.jsonl || fail "one rank in bf16"
  same 2 t2_half one_half
  same 8 t8
  same 8 t8_half one_half
  same 8 pt4
  same 4 dt
  same 8 pdt
  same 4 p4
fi

# ---- texts on the standard output, from the standard input ----
printf 'the cat sat on' >p
[ "$(gen 2 t2 --quiet --prompt-file - --max-tokens 8 <p)" = "$(gen 1 one --quiet --prompt-file - --max-tokens 8 <p)" ] ||
  fail "two ranks go on otherwise with the standard input"
for layout in "1 one" "2 p2" "2 d2"; do
  gen $layout --quiet --prompt "the cat" --prompt "the mat." -n 2 --max-tokens 4 --logprobs 1 >"texts.${layout#* }" || fail "code $? of $layout"
done
[ "$(grep -c '^==> prompt' texts.one)" -eq 4 ] || fail "four texts have four heads"
cmp texts.one texts.p2 && cmp texts.one texts.d2 || fail "other texts than one rank's"

# ---- a run that was stopped goes on ----
head -c 3000 one.jsonl >part.jsonl
gen 2 t2 --quiet --prompts in.jsonl -o part.jsonl || fail "going on"
cmp one.jsonl part.jsonl || fail "a run that goes on gives something else"

# ---- a rank that is killed ends the job at once, and the same command goes on behind what is whole ----
# killed RECIPE: of two ranks of that layout the second is killed once some results are there.
killed() {
  rm -f cut.jsonl
  $(on 2) zrun generate gpt2.zsg --init w.safetensors --recipe r.zug:$1 --threads 1 --quiet --prompts many.jsonl -o cut.jsonl >killed.txt 2>&1 &
  job=$!
  tries=0
  until [ -s cut.jsonl ]; do
    sleep 0.02
    tries=$((tries + 1))
    [ $tries -lt 1500 ] || { cat killed.txt; fail "$1 writes nothing"; }
  done
  victims=$(cat /proc/$job/task/$job/children)
  set -- $1 $victims
  kill -KILL $3
  tries=0
  while kill -0 $job 2>/dev/null; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "$1: the job is there 10 s after a rank was killed"
  done
  wait $job && fail "$1: a job of which a rank was killed ends well"
  lines=$(grep -c '^{.*}$' cut.jsonl)
  [ $lines -lt 400 ] || fail "$1: it was killed too late"
  gen 2 $1 --quiet --prompts many.jsonl -o cut.jsonl || fail "$1: going on behind $lines lines"
  cmp whole.jsonl cut.jsonl || fail "$1: going on behind $lines lines gives something else"
}
if at_night; then
  for i in $(seq 20); do sed '1,20!d; s/"max_tokens": [0-9]*/"max_tokens": 40/' in.jsonl; done >many.jsonl
  gen 1 one --quiet --prompts many.jsonl -o whole.jsonl || fail "many lines"
  killed t2
  killed d2
fi

# ---- what is planned ----
ok zplan show gpt2.zsg --recipe r.zug:dt --generate
grep -q '2 replicas' out.txt && grep -q '3 sequences of 64 tokens a replica' out.txt || { cat out.txt; fail "replicas are not shown"; }
grep -q 'last bits' out.txt && fail "other bits are said of a layout that has one rank's"
grep -q 'proved' out.txt || { cat out.txt; fail "it is not proved"; }

if at_night; then # three ranks: sums are no branches of one rank's
  cat >three.zug <<'END'
recipe learn { bind batch = 8, seq = 32   optimizer adamw(lr = 1e-2, b2 = 0.95) }
recipe three { mesh tensor = 3   bind batch = 4, seq = 64   split head, ffn, vocab over tensor   pad vocab to 3 }
END
  ok zc "$ZUG_SRC/examples/gpt2.zug" -o six.zsg -q -D layers=2 -D heads=6 -D width=48 -D context=64 -D words=256
  ok timeout -k 5 100 zrun train six.zsg --recipe three.zug:learn --data text.bin --steps 40 --save six.safetensors --quiet
  ok timeout -k 5 60 $(on 3) zrun generate six.zsg --init six.safetensors --recipe three.zug:three --threads 1 --prompts in.jsonl -o three.jsonl
  grep -q 'last bits of logits are not those of one rank: `dot`' out.txt || { cat out.txt; fail "three ranks do not say so"; }
  [ "$(wc -l <three.jsonl)" -eq 25 ] || fail "three ranks do not write all"
fi

# ---- what is wrong ----
g="zrun generate gpt2.zsg --init w.safetensors --threads 1"
mistake 'a step of generation has few tokens' $(on 2) $g --recipe r.zug:seq2 --prompt a
mistake 'is for 2 ranks' $g --recipe r.zug:t2 --prompt a
mistake 'gone' $(on 2) $g --recipe r.zug:t2 --prompt-file gone
refuses 'No space left' $(on 2) $g --recipe r.zug:t2 --prompts in.jsonl -o /dev/full
