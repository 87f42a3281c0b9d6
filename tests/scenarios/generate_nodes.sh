# zrun generate over a network: a model split over two nodes writes what one rank writes, bit for bit; a node that is cut
# off ends the job, and the same command makes what is missing.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
. "$ZUG_SRC/tests/scenarios/lib_nodes.sh"
nodes_up 2

cat >r.zug <<'END'
recipe init { bind batch = 1, seq = 32   optimizer sgd(lr = 1e-3) }
recipe one { bind batch = 4, seq = 256   precision compute bf16 }
recipe tensor from one { mesh tensor = 2   split head, ffn, vocab over tensor }
recipe pipe from one { mesh pipe = 2   stages over pipe by cost }
END
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -q -D layers=4 -D heads=8 -D width=64 -D context=256 -D words=256
ok zrun train gpt2.zsg --recipe r.zug:init --steps 0 --save w.safetensors --quiet
for i in 1 2 3 4 5 6; do
  echo "{\"tokens\": [$i, 7], \"max_tokens\": $((10 * i)), \"ignore_eos\": true, \"temperature\": 1, \"top_p\": 0.9, \"seed\": $i, \"logprobs\": 1}"
done >in.jsonl
gen="zrun generate gpt2.zsg --init w.safetensors --threads 1 --quiet"
ok $gen --recipe r.zug:one --prompts in.jsonl -o one.jsonl
for layout in tensor pipe; do
  on_two 1 $gen --recipe r.zug:$layout --prompts in.jsonl -o $layout.jsonl >$layout.out 2>&1 || { cat $layout.out; fail "$layout over two nodes"; }
  cmp one.jsonl $layout.jsonl || fail "$layout over two nodes: other results than one rank's"
done

# ---- a node is cut off ----
at_night || exit 0
for i in $(seq 2000); do echo "{\"tokens\": [$((i % 256)), 7], \"max_tokens\": 200, \"ignore_eos\": true}"; done >long.jsonl
after=4
on_two 1 $gen --recipe r.zug:tensor --prompts long.jsonl -o long.out.jsonl --hang-after ${after}s >cut.out 2>&1 &
job=$!
tries=0
until [ -s long.out.jsonl ]; do
  sleep 0.1
  tries=$((tries + 1))
  [ $tries -lt 300 ] || { cat cut.out; fail "nothing is written"; }
done
start=$(date +%s)
node_cut 2
wait $job && fail "a run whose network was cut is no success"
took=$(($(date +%s) - start))
[ $took -le $((after + 11)) ] || { cat cut.out; fail "it ended after $took s"; }
node_heal 2
done=$(wc -l <long.out.jsonl)
[ "$done" -lt 1900 ] || fail "nothing is left to do"
head -n $((done + 4)) long.jsonl >some.jsonl
on_two 1 $gen --recipe r.zug:tensor --prompts some.jsonl -o long.out.jsonl >again.out 2>&1 || { cat again.out; fail "the same command again"; }
[ "$(wc -l <long.out.jsonl)" -eq $((done + 4)) ] || fail "it did not go on behind what was whole"
