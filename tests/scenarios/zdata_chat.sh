# zdata pack --chat: conversations in all their forms, what is learned of them, what is refused; and windows of whole documents, which compute
# what each document does alone.
. "$ZUG_SRC/tests/scenarios/lib.sh"
texts=$ZUG_SRC/tests/data/text

mkdir model
cp "$texts/qwen/tokenizer.json" model
printf '%s' '{"eos_token": "<|im_end|>"}' >model/tokenizer_config.json
cat >model/chat_template.jinja <<'END'
{%- for m in messages %}
  {%- if m.role == 'wizard' %}{{ raise_exception('no ' + m.role) }}{%- endif %}
  {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
END
pack() { ok zdata pack --chat --tokenizer model "$@"; } # FILE... -o OUT

# ---- forms: the same bytes ----
cat >chats.jsonl <<'END'
{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Grüße <|im_end|>"}]}

{"messages": [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "And 3?"}, {"role": "assistant", "content": "3 it is."}]}
END
pack chats.jsonl -o chats.bin
says '^chats.bin: 97 tokens of 2 documents from 1 file$'
says '^23 tokens \(23.7 %\) are learned; the longest document has 50$'
ok zdata show chats.bin
says '^  windows whole documents, as many as fit in a window$'
ok zdata check chats.bin
same() { # FILE OPTION...: what it is packed to
  pack "$@" -o other.bin
  cmp chats.bin other.bin || fail "$1 is packed to something else"
}
{ printf '\n [' && sed '/^$/d; 1s/$/,/' chats.jsonl && printf ']\n'; } >chats.json && same chats.json
sed 's/"messages"/"conversations"/; s/"role": "user", "content"/"from": "human", "value"/g; s/"role": "assistant", "content"/"from": "gpt", "value"/g;
  s/"role": "system", "content"/"from": "system", "value"/' chats.jsonl >share.jsonl && same share.jsonl
sed 's/"messages"/"dialog"/' chats.jsonl >dialog.jsonl && same dialog.jsonl --fields messages=dialog
gzip -k chats.jsonl && same chats.jsonl.gz
sed -n 1p chats.jsonl >first.jsonl && pack first.jsonl -o first.bin
for form in '{"system": "Be brief.", "prompt": "Hi", "completion": "Grüße <|im_end|>"}' \
  '{"prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}], "completion": [{"role": "assistant", "content": "Grüße <|im_end|>"}]}'; do
  echo "$form" >form.jsonl
  pack form.jsonl -o form.bin
  cmp first.bin form.bin || fail "another form is packed to something else: $form"
done
echo '{"instruction": "Hi", "input": "", "output": "Grüße <|im_end|>", "note": "Be brief."}' >alpaca.jsonl
pack alpaca.jsonl --fields 'prompt=instruction+input,completion=output,system=note' -o form.bin
cmp first.bin form.bin || fail "Alpaca's fields are packed to something else"

# ---- what is learned ----
mask() { zdata decode "$1" --tokenizer model --show-mask; } # FILE
mask chats.bin >shown || fail "no mask is shown"
cat >wanted <<'END'
---- document 0
<|im_start|>system
Be brief.<|im_end|>
<|im_start|>user
Hi<|im_end|>
<|im_start|>assistant
[[Grüße <|im_end|><|im_end|>
]]
---- document 1
<|im_start|>user
1 + 1?<|im_end|>
<|im_start|>assistant
[[2<|im_end|>
]]<|im_start|>user
And 3?<|im_end|>
<|im_start|>assistant
[[3 it is.<|im_end|>
]]
END
diff shown wanted || fail "other tokens are learned"
pack chats.jsonl --loss last -o last.bin
mask last.bin | sed 's/\[\[2<|im_end|>/2<|im_end|>/; s/^]]//' >shown
mask last.bin | grep -c '\[\[' | grep -qx 2 || fail "more than the last answer is learned"
pack chats.jsonl --loss all -o all.bin
mask all.bin | tr -d '\n' | grep -q '^---- document 0\[\[<.*\]\]---- document 1\[\[<.*\]\]$' || fail "not everything is learned"
printf 'plain words' >plain.txt
echo '{"text": "plain words"}' >text.jsonl
pack plain.txt -o plain.bin
pack text.jsonl -o text.bin
cmp plain.bin text.bin || fail "a text is packed to something else than a line with it"
[ "$(mask text.bin)" = '[[plain words<|im_end|>]]' ] || fail "of a text something else is learned: $(mask text.bin)"

# ---- pairs ----
cat >pairs.jsonl <<'END'
{"prompt": "Hi", "chosen": "Hello", "rejected": "Go away!"}
{"chosen": [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "2."}], "rejected": [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "3"}]}
END
pack pairs.jsonl --windows pairs -o pairs.bin
says '^pairs.bin: [0-9]* tokens of 4 documents from 1 file$'
mask pairs.bin | tr -d '\n' | grep -qF 'Hi<|im_end|><|im_start|>assistant[[Hello<|im_end|>]]---- document 1' || fail "other tokens of a chosen answer are learned"
mask pairs.bin | tr -d '\n' | grep -qF '2?<|im_end|><|im_start|>assistant[[3<|im_end|>]]' || fail "other tokens of a rejected answer are learned"
refuses 'pairs.jsonl:1: it is a pair' zdata pack --chat --tokenizer model pairs.jsonl -o bad.bin
refuses 'chats.jsonl:1: --windows pairs: it has no `chosen` and `rejected`' zdata pack --chat --tokenizer model chats.jsonl --windows pairs -o bad.bin
for i in 1 2 3 4 5 6 7 8 9; do cat pairs.jsonl; done >more.jsonl
pack more.jsonl --windows pairs --split 0.5 -o more.bin # which parts no pair
ok zdata show more.train.bin
says ', [0-9]*[02468] documents$'

# ---- what is refused ----
bad() { # WORDS LINE OPTION...: as the second line
  words=$1 line=$2
  shift 2
  { sed -n 1p chats.jsonl && printf '%s\n' "$line" && sed -n 3p chats.jsonl; } >bad.jsonl
  refuses "bad.jsonl:2: $words" zdata pack --chat --tokenizer model bad.jsonl -o bad.bin "$@"
  [ ! -e bad.bin ] || fail "a file is left"
  pack --skip-bad bad.jsonl -o bad.bin "$@"
  says "^note: 1 bad conversation was left out, the first: bad.jsonl:2: $words"
  rm bad.bin
}
user='{"messages": [{"role": "user", "content": "Hi"}]}'
bad "no message is the assistant's" "$user"
bad 'it is not JSON' '{"messages": ['
bad 'it is not a JSON object' '3'
bad '.*no wizard' '{"messages": [{"role": "wizard", "content": "Hi"}, {"role": "assistant", "content": "x"}]}'
bad '`messages\[0\].role. is not a string' '{"messages": [{"content": "Hi"}]}'
bad 'no conversation: neither `messages`.*; it has .question. \(text\)' '{"question": "a"}'
bad '`conversations\[0\]. is from .cat., whose role is not known' '{"conversations": [{"from": "cat", "value": "a"}]}'
bad 'it has [0-9]+ tokens, and --seq is 50' '{"prompt": "0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5", "completion": "9"}' --seq 50
says '^windows of 50: 2, 3.0 % padding$'
{ printf '[' && sed '/^$/d; 1s/$/,/' chats.jsonl && printf ', %s]' "$user"; } >bad.json
refuses "bad.json, item 3: no message is the assistant's" zdata pack --chat --tokenizer model bad.json -o bad.bin
sed 's/]$//' chats.json >cut.json
refuses 'cut.json, item [0-9]: the list is not closed' zdata pack --chat --tokenizer model cut.json -o bad.bin
printf '{%% tags %%}' >wrong.jinja
refuses 'wrong.jinja:1: ' zdata pack --chat --tokenizer model chats.jsonl --chat-template wrong.jinja -o bad.bin
rm model/chat_template.jinja
refuses 'model has no chat template' zdata pack --chat --tokenizer model chats.jsonl -o bad.bin
refuses 'conversations need a tokenizer' zdata pack --chat chats.jsonl -o bad.bin
refuses '--seq is for --chat' zdata pack chats.jsonl --seq 5 -o bad.bin


# ---- windows: however documents share them, the loss is that of each alone ----
[ -x "$ZUG_BUILD/zrun" ] && [ -n "$MPIRUN" ] || exit 0
sed 's/vocab = 256/vocab = 2206/' "$ZUG_SRC/tests/data/models/documents.zug" >documents.zug
cat >>documents.zug <<'END'
model Plain {
  axis batch, seq, embed = 16, vocab = 2206
  input tokens: index(vocab)[batch, seq]
  input targets: index(vocab)[batch, seq]
  param table[vocab, embed] ~ normal(0.3)
  loss xent[vocab](dot[embed](lookup(table, tokens), table), targets) per known(targets)
}
recipe window from one { bind batch = 1, seq = 150   micro 1 }
recipe wide from one { bind batch = 1, seq = 240   micro 1 }
END
ok zc documents.zug -m Apart -o apart.zsg
ok zc documents.zug -m Plain -o plain.zsg
printf "{%% for m in messages %%}<|im_start|>{{ m.role }}: {{ m.content }}<|im_end|>{%% endfor %%}{%% if add_generation_prompt %%}<|im_start|>assistant: {%% endif %%}" >model/chat_template.jinja
awk 'BEGIN { for (i = 0; i < 23; i++) { s = ""; for (k = 0; k < i * 7 % 29; k++) s = s " " i + k
  printf "{\"prompt\": \"say%s\", \"completion\": \"%s\"}\n", s, substr(s, 2, 20) "." } }' >many.jsonl
pack many.jsonl -o many.bin
pack many.jsonl --windows each -o each.bin
trains() { ok timeout -k 5 60 zrun train "$2.zsg" --recipe "documents.zug:$3" --steps 1 --data "$1" --save "$2.safetensors"; } # DATA GRAPH RECIPE
evals() { # DATA GRAPH RECIPE: "loss LOSS over N targets"
  ok timeout -k 5 60 zrun eval "$2.zsg" --recipe "documents.zug:$3" --data "$1" --init "$2.safetensors"
  grep -o 'loss [0-9.]*.*targets' out.txt
}
trains many.bin apart window
says '^data: many.bin: 23 documents in 1[0-9] windows of 150, [0-9.]+ % padding$'
fit=$(evals many.bin apart window) each=$(evals each.bin apart window) wide=$(evals many.bin apart wide)
number() { echo "$1" | sed -n 's/^loss \([0-9.]*\).*[^0-9]\([0-9]*\) targets.*/\1 \2/p'; }
echo "$(number "$fit") $(number "$each") $(number "$wide")" | awk '
  { exit !(NF == 6 && $2 == $4 && $2 == $6 && ($1 - $3) ^ 2 < 1e-10 && ($1 - $5) ^ 2 < 1e-10) }' || # f32, another order of sums
  fail "windows that are shared have another loss: $fit; $each; $wide"
trains many.bin plain window
says '^data: many.bin: 23 documents in 23 windows of 150, .* one each: the model has no input `doc`'
refuses 'many.bin: document [0-9]+ has [0-9]+ tokens, a window has 32' zrun train apart.zsg --recipe documents.zug:one --steps 1 --data many.bin

# ---- --apart: nobody is asked for the first token of a document ----
awk 'BEGIN { for (i = 0; i < 40; i++) print "{\"text\": \"abcdefg\"}" }' >texts.jsonl
ok zdata pack texts.jsonl --end 0 -o texts.bin
ok zdata pack texts.jsonl --end 0 --apart -o parts.bin
sed -i 's/vocab = 2206/vocab = 256/' documents.zug
ok zc documents.zug -m Plain -o plain.zsg
trains texts.bin plain window
one=$(number "$(evals texts.bin plain window)") two=$(number "$(evals parts.bin plain window)")
[ "${one#* }" -eq 300 ] && [ "${two#* }" -eq 263 ] || fail "with --apart there are other targets: $one; $two" # 319 / 100 windows; 37 begin in them
exit 0
