# What `limit memory` leaves room for is kept for backward: the same training, in memory that is as planned and within the limit.
#
# What is kept is what forward went on with; made again, it is the same formula of the same numbers, but a processor may round a
# product and a sum at once or one after the other, which depends on what else a call makes. Such a difference is half a unit of
# f32 in single elements, 6e-8; over 6 steps of SGD 1e-6 is allowed for losses and norms. In bf16 what is made again begins with
# rounded values: 2e-3 as between layouts (precision.sh).
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
compare=$ZUG_BUILD/tests/scenarios/tools/compare_runs

cat >room.zug <<'TEXT'
recipe bare {
  bind batch = 16, seq = 32
  micro 2
  optimizer sgd(lr = 0.1, momentum = 0.9) decay 0.01 except norm, bias
  clip 1.0
  pad vocab to 4
}
recipe room from bare { limit memory 1 GB }
recipe room_all from room {
  mesh pipe = 2, data = 2, tensor = 2
  split batch over data
  split head?, kv?, ffn, vocab over tensor else seq
  stages over pipe by cost
  shard params, grads, states over data unit layer
}
recipe half from bare { precision compute bf16 }
recipe half_room from half { limit memory 1 GB }
recipe half_room_all from room_all { precision compute bf16 }
TEXT
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=4 -D heads=4 -D width=32 -D context=32 -D words=127
ok zc "$ZUG_SRC/examples/llama3.zug" -o llama3.zsg -D layers=4 -D heads=4 -D kv_heads=2 -D width=32 -D inner=64 -D words=127

# run PROGRAM MODEL RECIPE RANKS: with an evaluation in the same arena; memory is as planned.
run() {
  ok timeout -k 5 200 $(on "$4") "$1" train "$2.zsg" --recipe "room.zug:$3" --data text.bin --steps 6 --log "$2-$3" --eval text.bin --eval-batches 1
  python3 - "$2-$3/metrics.jsonl" <<'TEXT' || fail "$2, $3: memory"
import json, sys
for line in open(sys.argv[1]):
    m = json.loads(line)
    if 'loss' not in m: continue # an evaluation
    assert m['planned_bytes'] == m['used_bytes'] <= 10**9, m
    for c in m['classes']: assert c['planned_bytes'] == c['used_bytes'] <= 10**9, c
TEXT
}
alike() { # A B TOLERANCE
  "$compare" --loss "$3" --norm "$3" "$1/metrics.jsonl" "$2/metrics.jsonl" >diff.txt || { cat diff.txt; fail "$1 and $2 train differently"; }
  printf '%-16s %-20s %s\n' "$1" "$2" "$(tail -n 1 diff.txt)"
}
keeps() { # MODEL RECIPE WORDS
  ok zplan show "$1.zsg" --recipe "room.zug:$2"
  says '^kept as `limit memory` allows: [0-9.]+ [kM]B of activations of stage 0, which reads and writes [0-9.]+ [kM]B less a step$'
  says "$3"
}

for model in gpt2 llama3; do
  for recipe in bare room half half_room; do run zrun $model $recipe 1; done
  for recipe in room_all half_room_all; do run zrun $model $recipe 8; done
  keeps $model room 'real\[batch, seq, embed\]'
  keeps $model room_all 'real\[batch, seq, embed\]'
  alike $model-room $model-bare 1e-6
  alike $model-room_all $model-bare 1e-5
  alike $model-half_room $model-half 2e-3
  alike $model-half_room_all $model-half 2e-3
done

# ---- not a byte more than the limit: from the arena with everything kept down to what must be ----
arena() { ok zplan show gpt2.zsg --recipe "$1" --json && sed -n 's/.*"arena":[^0-9]*\([0-9]*\).*/\1/p' out.txt; }
least=$(arena room.zug:bare) most=$(arena room.zug:room)
[ "$most" -gt "$least" ] || fail "nothing is kept: $least, $most"
for limit in $most $((most - 1)) $((least + (most - least) / 2)) "$least"; do
  echo "use room  recipe some for GPT2 from room.room { limit memory $limit B }" >some.zug
  now=$(arena some.zug:some)
  [ "$now" -le "$limit" ] && [ "$now" -ge "$least" ] || fail "limit $limit: $now"
  [ "$limit" -eq "$most" ] && [ "$now" -ne "$most" ] && fail "what fits is not kept"
  [ "$limit" -eq $((most - 1)) ] && { [ "$now" -gt "$least" ] || fail "one byte less, and nothing is kept"; ok zplan show gpt2.zsg --recipe some.zug:some; says '; 1 more value does not fit$'; }
done

# ---- a GPU's fused calls, on one that is a thread ----
emu=$ZUG_BUILD/tests/scenarios/cuda/zrun-emu
[ -x "$emu" ] || { echo "fused calls were not tried: this build has no CUDA, or no C++ compiler"; exit 0; }
for recipe in bare room half half_room; do
  rm -rf gpt2-$recipe
  run "$emu" gpt2 $recipe 1
done
alike gpt2-room gpt2-bare 1e-6
alike gpt2-half_room gpt2-half 2e-3
