# What --log writes: event files say what metrics.jsonl says, also of a run that goes on, whose file is a new one.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
read="$ZUG_BUILD/tests/scenarios/tools/read_events"

sed 's/ kv,//' "$ZUG_SRC/tests/data/models/layouts.zug" | sed '/^recipe gqa/,$d' >recipes.zug
head -c 8000 "$ZUG_SRC/LICENSE" >text
ok zdata pack text -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=4 -D heads=4 -D width=32 -D context=32 -D words=127

train() { # STEPS OPTION...
  steps=$1
  shift
  ok timeout -k 5 100 $MPIRUN -np 2 zrun train gpt2.zsg --recipe recipes.zug:pipe2 --data text.bin --steps "$steps" \
    --eval text.bin --eval-batches 1 --eval-every 2 --log log "$@"
}
# scalars FILE...: "STEP TAG VALUE" of the numbers in event files
scalars() { for f; do $read "$f" >events.txt || fail "$f: $(cat events.txt)"; awk 'NF == 3 && $2 ~ /\// && $1 ~ /^[0-9]+$/ { printf "%d %s %.9g\n", $1, $2, $3 }' events.txt; done | sort; }
# The same of metrics.jsonl, made from the names of its keys.
wanted() {
  tr -d '{}' <"$1" | awk -F, '
    BEGIN {
      n = split("loss loss/train grad_norm optimizer/grad_norm lr optimizer/lr step_ms speed/step_ms predicted_ms speed/predicted_ms tokens_per_s speed/tokens_per_s" \
        " peak_share speed/peak_share bubble speed/bubble planned_bytes memory/planned_bytes used_bytes memory/used_bytes" \
        " eval_loss loss/eval eval_perplexity loss/eval_perplexity eval_ms speed/eval_ms", x, " ")
      for (i = 1; i < n; i += 2) tag["\"" x[i] "\""] = x[i + 1]
    }
    { sub(/,"classes".*/, ""); sub(/,"epochs":\[[^]]*\]/, ""); split($1, s, ":")
      for (i = 2; i <= NF; i++) { split($i, kv, ":"); if (kv[1] in tag) printf "%d %s %.9g\n", s[2], tag[kv[1]], kv[2] } }' | sort
}
# same WHAT: the scalars wanted and those there are, which are floats: rounded by 2^-24 of themselves at most
same() {
  [ "$(wc -l <want.txt)" -gt 30 ] || fail "$1: this test's own tool is broken: nothing is wanted"
  paste -d ' ' want.txt got.txt | awk '
    { d = $3 - $6; if (d < 0) d = -d }
    $1 != $4 || $2 != $5 || d > 6.1e-8 * ($3 < 0 ? -$3 : $3) { print; bad = 1 }
    END { exit bad }' || fail "$1: not the same as in metrics.jsonl"
}

train 5 --ckpt kept
set -- log/events.out.tfevents.*
[ $# -eq 1 ] || fail "$# event files after one run"
first=$1
scalars "$first" >got.txt
wanted log/metrics.jsonl >want.txt
same "the first run"
$read "$first" >events.txt
[ "$(head -n 2 events.txt)" = 'version brain.Event:2
START step 0' ] || { cat events.txt; fail "the head of an event file"; }
grep -q '^0 command text' events.txt && grep -q '^0 recipe text' events.txt && grep -q '^0 plan text' events.txt || fail "no texts"
grep -q '^recipe pipe2 ' events.txt && grep -q '^recipe pipe2 for model GPT2' events.txt || { cat events.txt; fail "not the recipe's text, or not the plan's"; }
grep -q '^zrun train gpt2.zsg --recipe ' events.txt || { cat events.txt; fail "not the command"; }

# A run that goes on: another file, named after the first, that begins where steps do.
train 9 --resume-from kept/step-00000005
set -- log/events.out.tfevents.*
[ $# -eq 2 ] && [ "$1" = "$first" ] || fail "not one event file more, or not behind the first: $*"
$read "$2" | grep -q '^START step 6$' || fail "no START at step 6"
scalars "$@" >got.txt
wanted log/metrics.jsonl >want.txt
same "a run that goes on"

# The reader notices what is wrong: a byte of a value, of a length, an end that is missing.
size=$(wc -c <"$first")
for at in 3 9 40 $((size / 2)) $((size - 2)); do
  cp "$first" broken
  byte=$(od -An -tu1 -j $at -N 1 broken | tr -d ' ')
  printf "\\$(printf %o $(((byte + 1) % 256)))" | dd of=broken bs=1 seek=$at conv=notrunc 2>/dev/null
  $read broken >/dev/null 2>&1 && fail "this test's own tool is broken: byte $at was changed"
done
head -c $((size - 1)) "$first" >broken
$read broken >/dev/null 2>&1 && fail "this test's own tool is broken: the end is missing"
exit 0
