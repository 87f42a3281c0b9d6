# zdata pack --tokenizer and zdata decode: the ids of `tokenizers` (tests/data/text), with any number of threads, and back.
. "$ZUG_SRC/tests/scenarios/lib.sh"
texts=$ZUG_SRC/tests/data/text

for name in gpt2 llama2 bert; do
  for text in text.txt broken.bin; do
    ok zdata pack "$texts/$text" --tokenizer "$texts/$name/tokenizer.json" --end none -o ids.bin
    tail -c +129 ids.bin | cmp - "$texts/$name/${text%.*}.ids.bin" || fail "$name: other ids of $text"
  done
  says '^note: 1 document was no UTF-8: U.FFFD for what is none$'
done
gpt2=$texts/gpt2/tokenizer.json
ok zdata pack "$texts/text.txt" --tokenizer "$gpt2" -o text.bin
says '^text.bin: 74542 tokens of 1 document from 1 file$'
says '^note: documents end with the token <.endoftext.>, 2200$'
ok zdata show text.bin
says '^  tokens  u16, ids below 2201, begins '

# ---- back ----
{ cat "$texts/text.txt" && printf '<|endoftext|>'; } >wanted
zdata decode text.bin --tokenizer "$gpt2" >back || fail "no text"
cmp back wanted || fail "decode gives another text"
printf '{"text":"one"}\n{"text":"\\u00e9t\\u00e9 <|endoftext|>"}\n{"text":"three four"}\n' >docs.jsonl
ok zdata pack docs.jsonl --tokenizer "$gpt2" -o docs.bin
zdata decode docs.bin --tokenizer "$gpt2" --document 2 >back
printf 'three four<|endoftext|>' | cmp - back || fail "another document: $(cat back)"
zdata decode docs.bin --tokenizer "$gpt2" --count 0 >back || fail "no tokens are no mistake"
[ ! -s back ] || fail "no tokens give text"
zdata decode text.bin --tokenizer "$gpt2" --from 20000 >back
zdata decode text.bin --tokenizer "$gpt2" --from 20000 --count 30000 >back.1
zdata decode text.bin --tokenizer "$gpt2" --from 50000 >back.2
cat back.1 back.2 | cmp - back || fail "parts are not the whole"
tail -c "$(wc -c <back)" wanted | cmp - back || fail "the end is another"
# Bytes need no tokenizer.
printf 'plain bytes\n' >plain.txt
ok zdata pack plain.txt --end 256 -o plain.bin
zdata decode plain.bin | cmp - plain.txt || fail "bytes are others"
[ "$(zdata decode plain.bin --from 6 --count 5)" = bytes ] || fail "not the bytes that were asked for"
[ "$(zdata decode plain.bin --from 6 --count 10)" = bytes ] || fail "more than there are is not all that are left"
zdata decode plain.bin --from 13 >back || fail "the end is no mistake" # of 12 bytes, and what ends the document
[ ! -s back ] || fail "something behind the end"

# ---- special tokens ----
ids() { od -An -v -tu2 -j128 -N $((2 * $(od -An -td8 -j16 -N8 "$1"))) "$1" | tr -s ' \n' ' '; }
count() { ids "$1" | tr ' ' '\n' | grep -cx "$2"; }
[ "$(count docs.bin 2200)" -eq 4 ] || fail "a special token in a text is not found"
ok zdata pack docs.jsonl --tokenizer "$gpt2" --special-as-text -o docs.bin
[ "$(count docs.bin 2200)" -eq 3 ] || fail "a special token is found in a text"
zdata decode docs.bin --tokenizer "$gpt2" --document 1 >back
printf 'été <|endoftext|><|endoftext|>' | cmp - back || fail "a text that spells a special token is another"
ok zdata pack docs.jsonl --tokenizer "$gpt2" --end 5 -o docs.bin
says 'documents end with the token &, 5$'
[ "$(count docs.bin 2200)" -eq 1 ] || fail "--end 5 is not the end"
ok zdata pack docs.jsonl --tokenizer "$gpt2" --end '!' -o docs.bin
says 'documents end with the token !, 0$'
for end in 'llama2 </s>' 'llama3 <.endoftext.>' 'qwen <.endoftext.>' 't5 </s>' 'bert .SEP.'; do
  ok zdata pack docs.jsonl --tokenizer "$texts/${end%% *}/tokenizer.json" -o docs.bin
  says "documents end with the token ${end#* }, "
done

# ---- threads: the same bytes with any number of them, and with long documents cut ----
while IFS= read -r line; do printf '{"text":"%s"}\n' "$(printf %s "$line" | tr -d '\\"\000-\037')"; done <"$texts/text.txt" >lines.jsonl
i=0
while [ $i -lt 6 ]; do
  cat "$texts/text.txt"
  i=$((i + 1))
done >part
{ cat part part part part >long.txt; } # about 4.7 MB: more than a piece
for threads in 1 2 5; do
  ok zdata pack lines.jsonl long.txt part --tokenizer "$gpt2" --threads $threads -o $threads.bin
  says '^note: 1 document was encoded in pieces: longer than 4 MiB$'
done
cmp 1.bin 2.bin || fail "two threads write something else than one"
cmp 1.bin 5.bin || fail "five threads write something else than one"
ok zdata check 5.bin
last=$(zdata show 1.bin | sed -n 's/.*, \([0-9]*\) documents$/\1/p')
zdata decode 1.bin --tokenizer "$gpt2" --document $((last - 2)) >back
{ cat long.txt && printf '<|endoftext|>'; } | cmp - back || fail "a document that was cut is another"

# ---- refusals ----
refuses "${gpt2##*/}2: No such file|cannot open" zdata pack plain.txt --tokenizer "${gpt2}2" -o x.bin
refuses 'text.txt' zdata pack plain.txt --tokenizer "$texts/text.txt" -o x.bin
refuses "has no token 'nix'" zdata pack plain.txt --tokenizer "$gpt2" --end nix -o x.bin
refuses 'the ids of .* are below 2201' zdata pack plain.txt --tokenizer "$gpt2" --end 2201 -o x.bin
sed 's/<|endoftext|>/<|fin|>/g' "$gpt2" >fin.json
refuses 'fin.json has no token that usually ends a document: which one shall' zdata pack plain.txt --tokenizer fin.json -o x.bin
says 'help: --end TOKEN, or --end none'
for threads in 0 1025 x; do
  refuses "--threads cannot be '$threads'" zdata pack plain.txt --tokenizer "$gpt2" --threads $threads -o x.bin
done
refuses '--threads is for --tokenizer' zdata pack plain.txt --threads 2 -o x.bin
refuses '--special-as-text is for --tokenizer' zdata pack plain.txt --special-as-text -o x.bin
refuses '--tokenizer is for texts' zdata pack plain.txt --tokens u16 --tokenizer "$gpt2" -o x.bin
refuses 'its tokens are no bytes, so a tokenizer is needed' zdata decode text.bin
ok zdata pack plain.txt --tokenizer "$texts/llama3/tokenizer.json" -o llama3.bin
refuses 'has ids below 22[0-9]*, the tokenizer has them below 2201' zdata decode llama3.bin --tokenizer "$gpt2"
refuses "--from cannot be '100000': there are 74542" zdata decode text.bin --tokenizer "$gpt2" --from 100000
refuses "--count cannot be '-1'" zdata decode text.bin --tokenizer "$gpt2" --count -1
refuses "--document cannot be 'x'" zdata decode docs.bin --tokenizer "$texts/bert/tokenizer.json" --document x
refuses 'has 3 documents, and no document 3' zdata decode docs.bin --tokenizer "$texts/bert/tokenizer.json" --document 3
refuses 'do not go with --document' zdata decode docs.bin --tokenizer "$texts/bert/tokenizer.json" --document 1 --from 2
refuses 'text.bin does not know its documents' zdata decode text.bin --tokenizer "$gpt2" --document 0
printf '1,2\n3,4\n' >table.csv
ok zdata table table.csv --label 2 -o table.bin
refuses 'table.bin has no tokens but records' zdata decode table.bin
[ -z "$(ls x.bin ./*.tmp 2>/dev/null)" ] || fail "something is left: $(ls)"
