# zdata tokenizer: what is trained packs the texts again, in fewer tokens than bytes, and the texts come back.
. "$ZUG_SRC/tests/scenarios/lib.sh"
text=$ZUG_SRC/tests/data/text/text.txt

ok zdata tokenizer --vocab 1000 "$text" "$ZUG_SRC/lang" -o tokenizer.json
says '^tokenizer.json: 1000 tokens, the last one <.endoftext.>$'
cp tokenizer.json first.json
ok zdata tokenizer --vocab 1000 "$text" "$ZUG_SRC/lang" -o tokenizer.json
cmp tokenizer.json first.json || fail "another tokenizer the second time"
ok zdata pack "$text" --tokenizer tokenizer.json -o text.bin
says '^note: documents end with the token <.endoftext.>, 999$'
{ cat "$text" && printf '<|endoftext|>'; } >wanted
zdata decode text.bin --tokenizer tokenizer.json | cmp - wanted || fail "another text comes back"
[ $((2 * $(wc -c <text.bin))) -lt $((3 * $(wc -c <"$text"))) ] || fail "hardly fewer tokens than bytes" # u16

# Its folder is as good as the file, to pack and to decode; one without it says which file it is.
mkdir hf && cp tokenizer.json hf
ok zdata pack "$text" --tokenizer hf -o again.bin
cmp again.bin text.bin || fail "other tokens of the folder"
zdata decode text.bin --tokenizer hf | cmp - wanted || fail "another text by the folder"
mkdir hollow
refuses 'cannot open hollow/tokenizer.json' zdata pack "$text" --tokenizer hollow -o x.bin

# JSON lines, compressed; the token at the end.
printf '{"body":"aab aab aab"}\n{"n":1}\n{"body":"aab"}\n' | gzip -c >docs.jsonl.gz
ok zdata tokenizer docs.jsonl.gz --field body --skip-bad --vocab 259 --end '<end>' -o small.json
says '^2 documents from 1 file$'
says '^note: 1 bad line was left out, the first: '
grep -q '"merges":\[\["a","a"\],' small.json || fail "not the pair that is there most often: $(tail -3 small.json)"
grep -q '"id":258,"content":"<end>"' small.json || fail "no <end>"
ok zdata tokenizer docs.jsonl.gz --field body --skip-bad --vocab 258 --end none -o small.json
grep -q '"added_tokens":\[\]' small.json || fail "a token that was not wanted"

# ---- what is refused ----
refuses 'zdata tokenizer needs --vocab' zdata tokenizer "$text" -o x.json
refuses "^zdata: error: --vocab cannot be '1k'" zdata tokenizer --vocab 1k "$text" -o x.json
refuses "^zdata: error: --vocab cannot be '0'" zdata tokenizer --vocab 0 "$text" -o x.json
refuses 'a vocabulary of 256 tokens; it has 256 bytes, 1 special' zdata tokenizer --vocab 256 "$text" -o x.json
printf 'abc' >short.txt
refuses 'the text is too short for 300 tokens: it has 257' zdata tokenizer --vocab 300 short.txt -o x.json
refuses 'no option --threads|takes no option' zdata tokenizer --vocab 300 "$text" -o x.json --threads 2
[ ! -e x.json ] || fail "something is left of a tokenizer that was not made"
cp short.txt other.txt
refuses 'other.txt' zdata tokenizer --vocab 300 "$text" -o other.txt
cmp short.txt other.txt || fail "another file was replaced"
for text_of in 'x{"version"' '{x"version"' '{\0"version"' '{"versio'; do # begins as none does
  printf "$text_of" >other.txt
  refuses 'other.txt' zdata tokenizer --vocab 300 "$text" -o other.txt
done
printf '{ \r\n\t"version"' >blanks.json # as one that other programs wrote
ok zdata tokenizer --vocab 300 "$text" -o blanks.json
