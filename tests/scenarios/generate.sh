# zrun generate: what users ask of a model that was trained here, and of a folder as the hub has them. Texts, ends, lines and
# their order, going on behind a stop, the same tokens in company, and what is wrong with what is given.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

# ---- a model of bytes that has learned one text by heart ----
cat >r.zug <<'END'
recipe learn { bind batch = 8, seq = 32   optimizer adamw(lr = 1e-2, b2 = 0.95)   clip 1.0 }
END
for i in $(seq 200); do printf 'the cat sat on the mat. '; done >text
ok zdata pack text -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -q -D layers=2 -D heads=2 -D width=32 -D context=64 -D words=256
ok timeout -k 5 100 zrun train gpt2.zsg --recipe r.zug:learn --data text.bin --steps 60 --save w.safetensors --ckpt kept --quiet

# ---- who writes alone takes all CPUs that are his, but for what is said ----
plan_with() { timeout -k 5 60 zrun generate gpt2.zsg --device cpu --dry-run "$@"; }
plan_with >usual && plan_with --threads "$(nproc)" >all && plan_with --threads 1 >one || fail "plans with threads"
cmp usual all || fail "not as many threads as CPUs"
[ "$(nproc)" -eq 1 ] || ! cmp -s usual one || fail "--threads does not change the plan's scratch, so this shows nothing"

gen() { timeout -k 5 60 zrun generate gpt2.zsg --init w.safetensors --quiet "$@"; }
says() { # TEXT OPTION...: what is written
  want=$1
  shift
  got=$(gen "$@") || fail "code $? of: $*"
  [ "$got" = "$want" ] || fail "'$got', wanted '$want': $*"
}
says " the mat. the" --prompt "the cat sat on" --max-tokens 13
says "the cat sat on the mat" --prompt "the cat sat on" --max-tokens 50 --stop . --echo
says " the mat. " --prompt "the cat sat on" --max-tokens 10
printf 'the cat sat on' >p
says " the mat" --prompt-file p --max-tokens 8
[ "$(gen --prompt-file - --max-tokens 8 <p)" = " the mat" ] || fail "a prompt of the standard input"
[ "$(timeout -k 5 60 zrun generate gpt2.zsg --init kept/step-00000060 --quiet --prompt "the cat" --max-tokens 4)" = " sat" ] ||
  fail "a checkpoint's weights"
gen --prompt "the cat" --prompt "the mat." --max-tokens 4 -n 2 >several || fail "several prompts"
[ "$(grep -c '^==> prompt' several)" -eq 4 ] || { cat several; fail "four texts have four heads"; }

# ---- lines: in their order, the same in any company, and gone on with ----
for i in $(seq 40); do
  echo "{\"prompt\": \"$(printf 'the cat sat on the mat. ' | head -c $((i % 20 + 1)))\", \"max_tokens\": $((i % 13 + 1)), \"logprobs\": 2}"
done >in.jsonl
sed -n '7!d; s/}$/, "temperature": 1, "seed": 5, "n": 2}/p' in.jsonl >>in.jsonl
gen --prompts in.jsonl -o out.jsonl || fail "lines"
[ "$(wc -l <out.jsonl)" -eq 41 ] || fail "$(wc -l <out.jsonl) results of 41 lines"
gen --prompts in.jsonl -o alone.jsonl --sequences 1 || fail "one at a time"
cmp out.jsonl alone.jsonl || fail "company changes results"
head -c 3000 out.jsonl >part.jsonl
gen --prompts in.jsonl -o part.jsonl || fail "going on"
cmp out.jsonl part.jsonl || fail "a run that goes on gives something else"
cp out.jsonl again.jsonl
ok zrun generate gpt2.zsg --init w.safetensors --prompts in.jsonl -o again.jsonl
grep -q 'nothing to do' out.txt || fail "all results are there, and it is not said"
cmp out.jsonl again.jsonl || fail "what is whole was changed"

# ---- what begins alike is made once, and the same is written ----
alike='the cat sat on the mat. the cat sat on the '
for tail in mat cat 'mat. t' ca; do echo "{\"prompt\": \"$alike$tail\", \"max_tokens\": 8, \"logprobs\": 2}"; done >alike.jsonl
ok zrun generate gpt2.zsg --init w.safetensors --prompts alike.jsonl -o alike.out
grep -q '96 more tokens of prompts were shared' out.txt || { cat out.txt; fail "three prompts have a page of 32 tokens of the first"; }
while read -r line; do
  printf '%s\n' "$line" >one.jsonl
  rm -f one.out
  gen --prompts one.jsonl -o one.out && cat one.out
done <alike.jsonl >apart.out
cmp alike.out apart.out || fail "what is shared changes results"

# ---- draft tokens: nothing else is written, only sooner ----
for how in '' ', "echo": true' ', "stop": ["the m", "on"]' ', "min_tokens": 9, "stop_token_ids": [46]' ', "temperature": 0.7, "seed": 3, "n": 3' \
  ', "repetition_penalty": 1.2, "frequency_penalty": 0.4, "presence_penalty": 0.3' ', "temperature": 1, "seed": 8, "top_p": 0.8' \
  ', "json_schema": {"type": "array", "items": {"enum": ["the cat", "the mat"]}, "minItems": 2, "maxItems": 2}'; do
  echo "{\"prompt\": \"the cat sat on the mat. the cat sat\", \"max_tokens\": 28, \"logprobs\": 2$how}"
done >drafts.jsonl
ok zrun generate gpt2.zsg --init w.safetensors --prompts drafts.jsonl -o drafts.out
grep -q '[1-9][0-9]* of [0-9]* draft tokens were right' out.txt || { cat out.txt; fail "a text that repeats itself has no right draft tokens"; }
gen --prompts drafts.jsonl -o none.out --draft-tokens 0 || fail "without draft tokens"
cmp drafts.out none.out || fail "draft tokens change results"

# ---- JSON that fits a schema: what the model knows is said where it fits, and the text ends with the JSON ----
echo '{"properties": {"where": {"enum": ["on the mat", "on the dog"]}}, "required": ["where"]}' >schema.json
gen --prompt "the cat sat " --json-schema schema.json --max-tokens 50 --min-tokens 40 >where.json || fail "a schema"
grep -Eqx '\{"where": ?"on the mat"\}' where.json || { cat where.json; fail "it is not the JSON of the schema"; }
# ---- chats: a template makes the prompt, and a conversation goes on with all that was said ----
printf "{%% for m in messages %%}{{ m.content }}{%% endfor %%}{%% if tools %%}no tools{%% endif %%}\n" >talk.jinja
says " the mat" --chat --chat-template talk.jinja --system "the cat " --prompt "sat on" --max-tokens 8
[ "$(printf 'the cat sat on\n\n. ' | gen --chat --chat-template talk.jinja --max-tokens 8 | tr '\n' '|')" = " the mat|the cat |" ] ||
  fail "two turns of a conversation"
echo '{"messages": [{"role": "user", "content": [{"type": "text", "text": "the cat sat on"}]}], "max_tokens": 8}' >chats.jsonl
gen --prompts chats.jsonl -o chats.out --chat-template talk.jinja || fail "a line with messages"
grep -q '"text":" the mat"' chats.out || { cat chats.out; fail "a line with messages"; }

# ---- what is wrong ----
bad() { # PATTERN LINE: a line among good ones
  { head -n 1 in.jsonl; printf '%s\n' "$2"; head -n 1 in.jsonl; } >bad.jsonl
  rm -f bad.out
  mistake "bad.jsonl:2: .*$1" zrun generate gpt2.zsg --init w.safetensors --prompts bad.jsonl -o bad.out
}
bad 'not JSON' '{'
bad 'did you mean .temperature' '{"prompt": "a", "temperture": 1}'
bad 'ids below 256' '{"tokens": [256]}'
bad 'at most 64' '{"prompt": "a", "max_tokens": 64}'
g="zrun generate gpt2.zsg --init w.safetensors"
bad 'no chat template' '{"messages": [{"role": "user", "content": "x"}]}'
mistake 'no chat template' $g --chat --prompt x
printf 'a\n{{ x | no_such_filter }}' >broken.jinja
mistake 'broken.jinja:2: .*no_such_filter' $g --chat --prompt x --chat-template broken.jinja
printf "{%% for m in messages %%}{{ raise_exception('no ' + m.role) }}{%% endfor %%}" >refusing.jinja
mistake 'no user' $g --chat --prompt x --chat-template refusing.jinja
echo x | mistake 'no user' $g --chat --chat-template refusing.jinja
printf 'x%.0s' $(seq 99) | mistake 'at most 64' $g --chat --chat-template talk.jinja
mistake 'prompt is empty' $g --prompt ''
mistake 'has 100 tokens; .* at most 64' $g --prompt "$(head -c 100 text)"
bad 'minimum. at #/properties/a ' '{"prompt": "a", "json_schema": {"properties": {"a": {"minimum": 3}}}}'
echo '{"type": "string", "pattern": "a+"}' >pattern.json
mistake 'pattern.json: .*pattern. at # is not supported' $g --prompt a --json-schema pattern.json
mistake 'needs --prompt' $g
mistake 'without weights' zrun generate gpt2.zsg --prompt a
mistake '65.*64 positions' $g --prompt a --length 65
CUDA_VISIBLE_DEVICES= mistake '--device' $g --prompt a --device cuda
mistake 'not a result' $g --prompts in.jsonl -o text
refuses 'No space left' $g --prompts in.jsonl -o /dev/full
cp w.safetensors cut.safetensors && truncate -s -100 cut.safetensors
mistake 'cut.safetensors' zrun generate gpt2.zsg --init cut.safetensors --prompt a
ok zc "$ZUG_SRC/examples/bert.zug" -o bert.zsg -q
mistake 'mask = none' zrun generate bert.zsg --init w.safetensors --prompt a
ok zc "$ZUG_SRC/examples/t5.zug" -o t5.zsg -q
mistake 'decoder_start_token_id' zrun generate t5.zsg --init w.safetensors --prompt a

# ---- folders: the shipped model of their model_type ----
hf=$ZUG_SRC/tests/data/hf
for family in gpt2 llama llama_tied qwen2 qwen3 gemma2; do
  echo '{"tokens": [5, 6, 7], "max_tokens": 5, "ignore_eos": true}' >ids.jsonl
  rm -f ids.out
  ok timeout -k 5 60 zrun generate "$hf/$family" --prompts ids.jsonl -o ids.out
  grep -q '"tokens":\[[0-9]*,[0-9]*,[0-9]*,[0-9]*,[0-9]*\]' ids.out || { cat ids.out; fail "$family"; }
done
mistake 'echo' zrun generate "$hf/small/t5" --prompt a --echo
mkdir other && sed 's/"model_type": "llama"/"model_type": "rwkv"/' "$hf/llama/config.json" >other/config.json
mistake 'model_type rwkv; there are .*gpt2.*qwen3' zrun generate other --prompt a

# ---- stopped: what is whole stays ----
for i in $(seq 3000); do echo '{"prompt": "the cat", "max_tokens": 50}'; done >many.jsonl
zrun generate gpt2.zsg --init w.safetensors --prompts many.jsonl -o many.out 2>stopped.txt &
pid=$!
for i in $(seq 100); do [ -s many.out ] && break; sleep 0.05; done
kill -INT $pid
wait $pid
code=$?
[ $code -eq 75 ] || { cat stopped.txt; fail "code $code of a run that was stopped"; }
[ -z "$(tail -c 1 many.out | tr -d '\n')" ] || fail "half a line is left"
