# zdata pack: texts, JSON lines and compressed ones as documents, and what is refused.
. "$ZUG_SRC/tests/scenarios/lib.sh"

# text FILE: the tokens of a file of bytes, which lie behind 128 bytes of header, in which byte 16 has their number.
text() { tail -c +129 "$1" | head -c "$(od -An -td8 -j16 -N8 "$1" | tr -d ' ')"; }
# holds TEXT (as printf has it): corpus.bin is that.
holds() {
  printf "$1" >wanted
  text corpus.bin | cmp - wanted || { od -c corpus.bin | tail -n +9; fail "corpus.bin does not hold $1"; }
}

# ---- kinds of files ----
mkdir in in/sub
printf 'a text' >in/1.txt
printf '{"text":"one"}\n{"n":[1,{"x":null}],"text":"two"}\n' >in/2.jsonl
gzip -c in/1.txt >in/sub/3.txt.gz
gzip -c in/2.jsonl >in/sub/4.jsonl.gz
printf 'no\0text' | gzip -c >in/sub/5.gz
: >in/6.txt
ok zdata pack in -o corpus.bin --end 10
says '^corpus.bin: 30 tokens of 6 documents from 5 files, 1 that are no text left out$'
says '^note: 1 empty document was left out$'
holds 'a text\none\ntwo\na text\none\ntwo\n'
ok zdata pack in/sub/4.jsonl.gz in/1.txt -o corpus.bin # without an end
holds 'onetwoa text'
gzip -c in/2.jsonl >>in/sub/4.jsonl.gz # members one after the other are one file
ok zdata pack in/sub/4.jsonl.gz -o corpus.bin --end 0
holds 'one\0two\0one\0two\0'
ok zdata pack in/1.txt in/2.jsonl -o corpus.bin --end 256 # more than a byte: u16
ok zdata show corpus.bin
says 'tokens  u16, ids below 257, begins 97 32 116 101 120 116 256 111 110 101 256 116$'
if command -v zstd >/dev/null; then
  zstd -q in/2.jsonl -o in/7.jsonl.zst
  zstd -qc in/2.jsonl >>in/7.jsonl.zst
  ok zdata pack in/7.jsonl.zst -o corpus.bin --end 0
  holds 'one\0two\0one\0two\0'
  head -c $(($(wc -c <in/7.jsonl.zst) - 3)) in/7.jsonl.zst >cut.zst
  refuses 'cut.zst is truncated: its compressed data end too early' zdata pack cut.zst -o x.bin
fi
printf '{"body":"piped"}' | ok zdata pack /dev/stdin --jsonl --field body -o corpus.bin
holds piped

# ---- JSON ----
# The last of a name counts; escapes; halves of pairs; blanks, a mark at the beginning, other ends of lines, no end.
printf '\357\273\277 {"text":"old","text":"\\u0041\\n\\"\\\\\\/\\b\\f\\r\\t"} \r\n\n  \t\n{"te\\u0078t":"\\ud83d\\ude00\\u00e9\\u20ac"}' >esc.jsonl
ok zdata pack esc.jsonl -o corpus.bin --end 1
holds 'A\n"\\/\b\f\r\t\001\360\237\230\200\303\251\342\202\254\001'
printf '{"text":"a\\ud83d\\ud83dx\\udc00","t\\ud800":1}' >half.jsonl
ok zdata pack half.jsonl -o corpus.bin
says '^note: 3 halves of surrogate pairs were replaced by U.FFFD$'
holds 'a\357\277\275\357\277\275x\357\277\275'
printf '{"text":"","n":1}\n{"text":"\377\\u0000"}' >odd.jsonl # bytes that are no UTF-8 are bytes
ok zdata pack odd.jsonl -o corpus.bin
holds '\377\0'
says '^note: 1 empty document was left out$'
printf '[]{}{"text":1}' >good
n=0
while IFS='|' read -r why line; do
  n=$((n + 1))
  printf '{"text":"good"}\n\n%s\n' "$line" >bad.jsonl
  refuses "bad.jsonl:3: no text of the field 'text': $why" zdata pack bad.jsonl -o x.bin
  says 'help: --skip-bad leaves such lines out'
  ok zdata pack bad.jsonl -o corpus.bin --skip-bad
  says "^note: 1 bad line was left out, the first: bad.jsonl:3: no text of the field 'text': $why\$"
  holds good
done <<'END'
it is not a JSON object|some text
it is not a JSON object|["text"]
it has no such field|{}
it has no such field|{"Text":"a","t":{"text":"a"},"l":["text","a"]}
the field is not text|{"text":null}
the field is not text|{"text":["a"]}
a string is not closed|{"text":"a
a string is not closed|{"text":"a\
a control character in a string|{"text":"a	b"}
an unknown escape in a string|{"text":"\x41"}
.u is not followed by four hexadecimal digits|{"text":"\u12g4"}
.u is not followed by four hexadecimal digits|{"text":"\ud800\u12"}
a comma or an end is missing|{"text":"a" "b":1}
a comma or an end is missing|{"text":"a"
a comma or an end is missing|{"l":[1 2],"text":"a"}
an object's name is missing|{"text":"a",}
an object's name is missing|{"text" "a"}
an object's name is missing|{"o":{1:2},"text":"a"}
a value is neither text, number, list nor object|{"n":01,"text":"a"}
a value is neither text, number, list nor object|{"n":nul,"text":"a"}
a value is neither text, number, list nor object|{"l":[1,],"text":"a"}
a number ends too early|{"n":1.,"text":"a"}
a number ends too early|{"n":1e+,"text":"a"}
it ends too early|{"n":
something follows the object|{"text":"a"} {"text":"b"}
END
[ $n -eq 25 ] || fail "only $n bad lines"
deep=$(printf '%01000d' 0 | tr 0 '[')
printf '{"l":%s' "$deep" >deep.jsonl
refuses 'deep.jsonl:1: .*it ends too early' zdata pack deep.jsonl -o x.bin
printf '{"l":%s' "[$deep" >deep.jsonl
refuses 'deep.jsonl:1: .*lists within lists, too deep' zdata pack deep.jsonl -o x.bin
printf 'a\nb\n' >bad.jsonl
refuses 'nothing to pack: all 2 lines are bad, the first: bad.jsonl:1: ' zdata pack bad.jsonl -o x.bin --skip-bad
# A field that is called otherwise: which there are, and how one is taken.
printf '{"id":1,"content":"abc"}\n{"content":"d"}\n' >other.jsonl
refuses "other.jsonl:1: no text of the field 'text': it has no such field" zdata pack other.jsonl -o x.bin
says "help: --field content: it has 'id', 'content' \(text\)\$"
refuses 'nothing to pack: all 2 lines are bad' zdata pack other.jsonl -o x.bin --skip-bad
says 'help: --field content: '
ok zdata pack other.jsonl -o corpus.bin --field content
holds abcd
printf '{"text":["a"],"body":"x"}\n' >other.jsonl
refuses 'the field is not text' zdata tokenizer other.jsonl --vocab 300 -o x.json
says "help: --field body: it has 'text', 'body' \(text\)\$"
printf '{"messages":[]}\n' >other.jsonl
refuses 'no such field' zdata pack other.jsonl -o x.bin
says "help: --field NAME .*'messages'\$"
printf '{"text":""}\n' >empty.jsonl
refuses 'nothing to pack: 1 files, all empty' zdata pack empty.jsonl -o x.bin

# ---- long documents: more than is held at a time, in a little memory ----
seq 1500000 >long.txt
ok zdata pack long.txt -o corpus.bin
says '10888896 tokens of 1 document'
text corpus.bin | cmp - long.txt || fail "a long text is another"
gzip -1c long.txt >long.gz
(tr '\n' ' ' <long.txt | sed 's/.*/{"text":"&"}/' && printf '\n{"text":"end"}') >long.jsonl
ok zdata pack long.gz long.jsonl long.txt -o corpus.bin --end 10
says 'tokens of 4 documents'
{ cat long.txt && echo && tr '\n' ' ' <long.txt && echo && echo end && cat long.txt && echo; } >wanted
text corpus.bin | cmp - wanted || fail "long documents are others"
for size in 4194303 4194304 4194305; do # a piece, and one byte more or less
  head -c $size long.txt >exact.txt
  ok zdata pack exact.txt exact.txt -o corpus.bin --end 10
  says "^corpus.bin: $((2 * size + 2)) tokens of 2 documents from 2 files$"
  { cat exact.txt && echo && cat exact.txt && echo; } >wanted
  text corpus.bin | cmp - wanted || fail "documents of $size bytes are others"
done
ok zdata pack exact.txt exact.txt -o corpus.bin --end 256 # two bytes wide
says "^corpus.bin: $((2 * size + 2)) tokens of 2 documents from 2 files$"
# A line of 64 MiB is read, a longer one is not.
line() { head -c "$1" /dev/zero | tr '\0' a | sed 's/.*/{"text":"&"}/'; }
line $(((64 << 20) - 11)) >line.jsonl
ok zdata pack line.jsonl -o corpus.bin
says '67108853 tokens of 1 document'
{ line $(((64 << 20) - 10)) && printf '\n{"text":"after"}\n'; } >line.jsonl
refuses "line.jsonl:1: no text of the field 'text': the line is longer than 64 MiB" zdata pack line.jsonl -o x.bin
ok zdata pack line.jsonl -o corpus.bin --skip-bad
says '5 tokens of 1 document'
rm line.jsonl
grep -q 'SANITIZE_TRUE.*="#"' "$ZUG_BUILD/config.status" && # sanitizers reserve terabytes
  ok sh -c 'ulimit -v 60000; exec zdata pack long.gz long.txt -o corpus.bin'

# ---- damage ----
head -c 1000 long.gz >cut.gz
refuses 'cut.gz is truncated: its compressed data end too early' zdata pack cut.gz -o x.bin
{ cat long.gz && printf more; } >more.gz
refuses 'more.gz is damaged: incorrect header check' zdata pack more.gz -o x.bin
cp long.txt wrong.gz
refuses 'wrong.gz is damaged: incorrect header check' zdata pack wrong.gz -o x.bin
cp long.txt wrong.zst
refuses 'wrong.zst is damaged: Unknown frame descriptor' zdata pack wrong.zst -o x.bin
: >empty.gz
refuses 'empty.gz is damaged: it is empty' zdata pack empty.gz -o x.bin
{ head -c 1000 long.gz && printf XXXX && tail -c +1005 long.gz; } >hit.gz
refuses 'hit.gz is (damaged|truncated)' zdata pack hit.gz -o x.bin
printf 'old' >old.txt
ok zdata pack old.txt -o kept.bin
cp kept.bin kept.old
refuses 'cut.gz is truncated' zdata pack long.txt cut.gz -o kept.bin # what was there stays
cmp kept.bin kept.old || fail "a failed run changed its output"
[ -z "$(ls x.bin ./*.tmp 2>/dev/null)" ] || fail "something is left: $(ls)"

# ---- options ----
refuses "--end cannot be 'x'" zdata pack old.txt -o x.bin --end x
refuses "--end cannot be 65535" zdata pack old.txt -o x.bin --end 65535
refuses '--field is given twice' zdata pack old.txt -o x.bin --field a --field b
refuses '--vocab is for --tokens' zdata pack old.txt -o x.bin --vocab 3
for option in '--end 1' '--field a' --jsonl --skip-bad; do
  refuses "${option% ?} is for texts; with --tokens" zdata pack old.txt --tokens u16 -o x.bin $option
done
zdata pack none -o x.bin >out.txt 2>&1
[ $? -eq 2 ] || fail "a mistake has not code 2"

# ---- documents ----
# starts FILE: where its documents begin, behind the tokens.
starts() {
  tokens=$(od -An -td8 -j16 -N8 "$1") documents=$(od -An -td8 -j48 -N8 "$1")
  od -An -v -td8 -w8 -j $(((128 + tokens + 7) / 8 * 8)) -N $((8 * documents)) "$1" | tr -d ' ' | paste -sd ' '
}
printf '{"text":"one"}\n{"text":""}\n{"text":"three"}\n{"text":"x"}\n' >docs.jsonl
ok zdata pack docs.jsonl old.txt -o docs.bin --end 0
[ "$(starts docs.bin)" = '0 4 10 12' ] || fail "documents begin at $(starts docs.bin)"
ok zdata show docs.bin
says '^docs.bin: 16 tokens, 184 B, 4 documents$'
ok zdata check docs.bin
size=$(wc -c <docs.bin)
{ head -c $((size - 20)) docs.bin && printf X && tail -c 19 docs.bin; } >hit.bin
refuses 'hit.bin is damaged: the checksum of its documents differs' zdata check hit.bin

# ---- what is not text, or no raw numbers: refused with the command that helps ----
no_text() { # NAME WORDS
  refuses "$2" zdata pack "$1" -o x.bin
  [ ! -e x.bin ] || fail "$1 was packed"
}
printf 'PAR1\0\0\0\0PAR1' >data.parquet && no_text data.parquet "data.parquet is a Parquet file, not a text"
says "^help: two lines of Python make JSON lines of it: import pandas"
refuses 'is a Parquet file, not raw numbers' zdata pack data.parquet --tokens u16 -o x.bin
refuses 'is a Parquet file' zdata tokenizer data.parquet -o x.json --vocab 300
{ printf '\223NUMPY\1\0\166\0' && printf '%118s' "{'descr': '<u2', }" && printf '\1\0\2\0'; } >ids.npy
refuses "ids.npy is a file of NumPy's, whose first 128 bytes are a header" zdata pack ids.npy --tokens u16 -o x.bin
says '^help: tail -c \+129 ids.npy >raw.bin'
tail -c +129 ids.npy >raw.bin
ok zdata pack raw.bin --tokens u16 -o raw.out
says '^raw.out: 2 tokens'
printf '\377\376h\0e\0' >mark.txt && no_text mark.txt 'mark.txt is UTF-16, and texts are UTF-8'
printf 'a\0b\0c\0d\0e\0f\0g\0h\0i\0' >bare.txt && no_text bare.txt 'bare.txt is UTF-16'
printf ' [\n{"text": "a"}]\n' >array.json && no_text array.json "array.json is one JSON array, not a text"
gzip -kf array.json && no_text array.json.gz 'array.json.gz is one JSON array'
gzip -c old.txt >unnamed && no_text unnamed 'unnamed is compressed by gzip, not a text'
printf '{"text": "a"}\n{"text": "b"}\n' >lines.json
ok zdata pack lines.json -o lines.bin
says 'note: lines.json is taken as a text, JSON and all; if it is an object a line, name it .jsonl'
printf '[1, 2]' >list.txt # and what is called a text is one
ok zdata pack list.txt -o list.bin
printf 'a\0b' >zero.txt
ok zdata pack zero.txt -o zero.bin
says 'note: zero.txt has bytes of 0'
