# zdata import: tokens of Megatron, llm.c and nanoGPT, and what is refused.
. "$ZUG_SRC/tests/scenarios/lib.sh"

# le BYTES NUMBER...: each number in so many bytes, the lowest first.
le() {
  width=$1
  shift
  for number; do
    at=0
    while [ $at -lt "$width" ]; do
      printf "\\$(printf %03o $(((number >> (8 * at)) & 255)))"
      at=$((at + 1))
    done
  done
}
ids() { # FILE: its tokens
  case $(od -An -tu4 -j104 -N4 "$1" | tr -d ' ') in 0) size=1 ;; 1) size=2 ;; *) size=4 ;; esac
  od -An -v -tu$size -j128 -N $((size * $(od -An -td8 -j16 -N8 "$1"))) "$1" | tr -s ' \n' ' ' | sed 's/^ //; s/ $//'
}
starts() { # FILE: the first tokens of its documents
  documents=$(od -An -td8 -j48 -N8 "$1" | tr -d ' ')
  [ "$documents" -gt 0 ] || return 0
  tail -c $((8 * documents + 8)) "$1" | head -c $((8 * documents)) | od -An -v -td8 -w8 | tr -d ' ' | paste -sd ' '
}
has() { # FILE IDS STARTS
  [ "$(ids "$1")" = "$2" ] || fail "$1 has the ids $(ids "$1"), not $2"
  [ "$(starts "$1")" = "$3" ] || fail "documents of $1 begin at $(starts "$1"), not $3"
}

# ---- Megatron: four sequences, the second and third of one document, and a document without any ----
index() { # TYPE BYTES-OF-A-TOKEN
  printf 'MMIDIDX\0\0'
  le 8 1
  le 1 "$1"
  le 8 4 5 # sequences, entries for documents
  le 4 2 1 3 1
  le 8 0 $((2 * $2)) $((3 * $2)) $((6 * $2))
  le 8 0 1 1 3 4
}
for type in '1 1' '2 1' '8 2' '3 2' '4 4' '5 8'; do
  le "${type#* }" 10 11 20 0 22 23 100 >m.bin
  index ${type% *} ${type#* } >m.idx
  ok zdata import m.idx -o out.bin
  says '^out.bin: 7 tokens of 3 documents from 1 file$'
  has out.bin '10 11 20 0 22 23 100' '0 2 6'
done
ok zdata show out.bin
says '^  tokens  u32, ids below 101, begins 10 11 20 0 22 23 100$'
le 2 10 11 20 21 22 23 100 >m.bin
index 8 2 >m.idx
ok zdata import m.bin --vocab 50257 -o out.bin # by either name
ok zdata show out.bin
says '^  tokens  u16, ids below 50257, begins'
le 1 0 0 0 0 >modes
cat m.idx modes >modes.idx && cp m.bin modes.bin # kinds of sequences
ok zdata import modes.idx m.bin -o out.bin
has out.bin '10 11 20 21 22 23 100 10 11 20 21 22 23 100' '0 2 6 7 9 13'
# Sequences lie where the index says, in another order too: the pointers are bytes 50 to 81.
{ head -c 50 m.idx && le 8 2 0 6 12 && tail -c +83 m.idx; } >moved.idx
cp m.bin moved.bin
ok zdata import moved.idx -o out.bin
has out.bin '11 20 10 21 22 23 100' '0 2 6'

# ---- llm.c: documents begin with the end token of GPT-2, or the first of Llama 3 ----
header() { # MAGIC VERSION COUNT
  le 4 "$1" "$2" "$3"
  head -c 1012 /dev/zero
}
{ header 20240520 1 7 && le 2 50256 1 2 50256 3 50256 4; } >gpt.bin
ok zdata import gpt.bin -o out.bin
says '^out.bin: 7 tokens of 3 documents from 1 file$'
has out.bin '50256 1 2 50256 3 50256 4' '0 3 5'
ok zdata import gpt.bin gpt.bin --start 3 -o out.bin # a file begins a document
has out.bin '50256 1 2 50256 3 50256 4 50256 1 2 50256 3 50256 4' '0 4 7 11'
{ header 20240801 7 4 && le 4 128000 128255 128000 7; } >llama.bin
ok zdata import llama.bin -o out.bin
has out.bin '128000 128255 128000 7' '0 2'

# ---- nanoGPT: bare u16; what ends a document has to be said ----
le 2 5 6 50256 7 50256 8 9 >nano.bin
ok zdata import nano.bin --format nanogpt -o out.bin
says '^out.bin: 7 tokens from 1 file$'
has out.bin '5 6 50256 7 50256 8 9' ''
ok zdata import nano.bin nano.bin --format nanogpt --end 50256 -o out.bin
says '^out.bin: 14 tokens of 6 documents from 2 files$'
has out.bin '5 6 50256 7 50256 8 9 5 6 50256 7 50256 8 9' '0 3 5 7 10 12'
# Which documents are for validation goes by their number, whatever tells where they begin.
le 2 $(for i in $(seq 10 29); do echo 1 "$i"; done) >begun
le 2 $(for i in $(seq 10 29); do echo "$i" 1; done) >ended
held_out() { ids "$1.valid.bin" | tr ' ' '\n' | grep -vx 1 | paste -sd ' '; }
ok zdata import begun --format nanogpt --start 1 --split 0.5 -o begun.bin
ok zdata import ended --format nanogpt --end 1 --split 0.5 -o ended.bin
[ "$(held_out begun | wc -w)" -gt 0 ] && [ "$(held_out begun)" = "$(held_out ended)" ] || fail "documents for validation: $(held_out begun); $(held_out ended)"
# More than is read at a time, and documents over that.
seq 60000 | head -c 300000 >long.bin
ok zdata import long.bin long.bin --format nanogpt --end 2608 -o long.out # 0x0a30, "0\n"
cat long.bin long.bin >twice
head -c $((128 + $(wc -c <twice))) long.out | tail -c +129 | cmp - twice || fail "long tokens are others"
ok zdata check long.out
ok zdata import long.bin long.bin --format nanogpt --end 2608 --shard-size 200k --split 0.5 -o shards
ok zdata show shards/valid
says 'ids below 1[0-9]*, '
ok zdata import long.bin --format nanogpt --shard-size 100k -o unknown
says '^unknown: 150000 tokens in 3 shards from 1 file$'

# ---- refusals ----
m() { refuses "$1" zdata import bad.idx -o x.bin; }
le 2 10 11 20 21 22 23 100 >bad.bin
change() { # BYTE BYTES NUMBER: the index with a number changed there
  { head -c "$1" m.idx && le "$2" "$3" && tail -c +$(($1 + $2 + 1)) m.idx; } >bad.idx
}
change 0 1 7 && m 'bad.idx is not an index of Megatron'
change 9 8 2 && m 'bad.idx has version 2; this program reads 1'
for type in 0 6 7 9 255; do change 17 1 $type && m "its tokens are of type $type, which is none of whole numbers"; done
change 18 8 100000 && m 'is damaged: 100000 sequences and 5 entries'
change 26 8 0 && m 'is damaged: 4 sequences and 0 entries'
change 26 8 6 && m 'is truncated: its header promises 130 bytes, it has 122'
change 26 8 3 && m 'is damaged: its header promises 106 bytes'
head -c 33 m.idx >bad.idx && m 'it ends within its header'
change 34 4 8 && m 'no room for sequence 0'
change 34 4 $((1 << 31)) && m 'no room for sequence 0'
change 58 8 15 && m 'no room for sequence 1'
change 74 8 $((1 << 62)) && m 'no room for sequence 3'
change 82 8 1 && m 'its sequences contradict each other in document 0'
change 98 8 5 && m 'its sequences contradict each other in document 1'
change 106 8 0 && m 'its sequences contradict each other in document 2'
change 114 8 3 && m 'no document has sequence 3'
cp m.idx bad.idx
le 2 10 11 65535 21 22 23 100 >bad.bin && m 'bad.bin: token 2 has the id 65535, which means'
refuses 'token 6 has the id 100; --vocab says that ids are below 100' zdata import m.idx --vocab 100 -o x.bin
rm bad.bin && m 'cannot open bad.bin: No such file'
refuses '--end: the index of m.bin says where documents begin' zdata import m.idx --end 3 -o x.bin
index 4 4 >neg.idx
{ le 4 10 11 20 && printf '\377\377\377\377' && le 4 1 2 3; } >neg.bin
refuses 'neg.bin: token 3 has the id -1; ids are 0 to' zdata import neg.idx -o x.bin
refuses 'neg.bin has tokens of another type than m.bin' zdata import m.idx neg.idx -o x.bin
head -c 1030 gpt.bin >cut.bin
refuses 'cut.bin is truncated: its header promises 7 tokens in 1038 bytes, it has 1030' zdata import cut.bin -o x.bin
{ header 20240520 2 0; } >two.bin
refuses "llm.c's header has version 2; this program reads 1" zdata import two.bin -o x.bin
{ header 20240520 1 0; } >none.bin
refuses 'nothing to import' zdata import none.bin -o x.bin
refuses 'nano.bin is not of llm.c, and has no .idx beside it' zdata import nano.bin -o x.bin
refuses 'nano.bin is not of llm.c' zdata import nano.bin --format llmc -o x.bin
refuses 'cannot open nano.idx: No such file' zdata import nano.bin --format megatron -o x.bin
refuses 'nano.bin: token 2 has the id 50256; --vocab says that ids are below 50256' zdata import nano.bin --format nanogpt \
  --vocab 50256 -o x.bin
ok zdata import nano.bin --format nanogpt --vocab 50257 -o out.bin
le 2 5 65535 6 >large.bin
refuses 'large.bin: token 1 has the id 65535, which means' zdata import nano.bin large.bin nano.bin --format nanogpt -o x.bin
refuses "--format cannot be 'x'" zdata import nano.bin --format x -o x.bin
head -c 3 nano.bin >odd.bin
refuses 'odd.bin does not consist of whole tokens of 2 bytes' zdata import odd.bin --format nanogpt -o x.bin
refuses '--split needs documents' zdata import nano.bin --format nanogpt --split 0.5 -o x.bin
refuses "--start cannot be 'x'" zdata import nano.bin --format nanogpt --start x -o x.bin
refuses "--vocab cannot be '0'" zdata import nano.bin --format nanogpt --vocab 0 -o x.bin
refuses '-o nano.bin would overwrite nano.bin' zdata import nano.bin --format nanogpt -o nano.bin
refuses '-o m.bin would overwrite m.bin' zdata import m.idx -o m.bin
[ -z "$(ls -d x* ./*.tmp 2>/dev/null)" ] || fail "something is left: $(ls)"

# ---- the last id of u16, which means `unknown` in our files: with a vocabulary that has it they are u32 ----
le 2 1 65535 2 65535 >last.bin
ok zdata import last.bin --format nanogpt --vocab 65536 -o last.out
ok zdata show last.out
says 'u32, ids below 65536, begins 1 65535 2 65535'
refuses "last.bin: token 1 has the id 65535, which means .unknown. in a file of u16" zdata import last.bin --format nanogpt -o x.bin
refuses "last.bin has the id 65535, which means .unknown." zdata pack last.bin --tokens u16 --vocab 65536 -o x.bin
ok zdata pack last.bin --tokens u16 -o last.out
says 'last.out: 4 tokens'

# ---- the largest id that is there, at byte 44 of the field, whatever --vocab says; `unknown` is none ----
le 2 7 300 65535 2 >some.bin
ok zdata pack some.bin --tokens u16 --vocab 50257 -o some.out
[ "$(od -An -tu4 -j108 -N4 some.out | tr -d ' ')" = 301 ] || fail "the largest id is not in the header"
