# zdata pack --split and --shard-size: which files there are, and what is in them.
. "$ZUG_SRC/tests/scenarios/lib.sh"
text() { tail -c +129 "$1" | head -c "$(od -An -td8 -j16 -N8 "$1" | tr -d ' ')"; }
i=0
while [ $i -lt 400 ]; do
  echo "{\"text\":\"document $i\"}"
  i=$((i + 1))
done >docs.jsonl
sed 's/.*:"\(.*\)"}/\1/' docs.jsonl >docs.txt

# ---- split: by document, the same again, and another by another seed ----
ok zdata pack docs.jsonl --end 10 --split 0.9 -o a.bin
train=$(sed -n 's/^a.train.bin: .* of \([0-9]*\) documents$/\1/p' out.txt)
valid=$(sed -n 's/^a.valid.bin: .* of \([0-9]*\) documents from 1 file$/\1/p' out.txt)
[ "$((train + valid))" -eq 400 ] || { cat out.txt; fail "$train and $valid documents"; }
[ "$valid" -gt 20 ] && [ "$valid" -lt 65 ] || fail "$valid of 400 are not about a tenth" # 40, and 4 standard deviations of 6
text a.train.bin >train
text a.valid.bin >valid
sort train valid >both
sort docs.txt | cmp - both || fail "a document is lost, or in both"
sort -c -t' ' -k2n train && sort -c -t' ' -k2n valid || fail "out of order"
ok zdata check a.valid.bin
ok zdata pack docs.jsonl --end 10 --split 0.9 -o again.bin --seed 0
cmp a.valid.bin again.valid.bin && cmp a.train.bin again.train.bin || fail "another split"
ok zdata pack docs.jsonl --end 10 --split 0.9 -o other.bin --seed 1
cmp -s a.valid.bin other.valid.bin && fail "another seed is no other split"
mkdir d.d
ok zdata pack docs.jsonl --split 0.5 -o d.d/plain
[ -f d.d/plain.train ] && [ -f d.d/plain.valid ] || fail "names: $(ls d.d)"

# ---- shards: whole documents, one file to readers ----
ok zdata pack docs.jsonl --end 10 --shard-size 1k -o shards
says '^shards: 5090 tokens of 400 documents in 6 shards from 1 file$'
[ "$(cd shards && echo *)" = '00000.bin 00001.bin 00002.bin 00003.bin 00004.bin 00005.bin' ] || fail "shards: $(ls shards)"
for f in shards/*.bin; do text "$f"; done | cmp - docs.txt || fail "shards are another text"
for f in shards/*.bin; do [ "$(text "$f" | tail -c 1 | od -An -tu1 | tr -d ' ')" = 10 ] || fail "$f ends within a document"; done
ok zdata show shards
says '^shards: 5090 tokens, .*, 400 documents$'
ok zdata check shards/
zdata decode shards | cmp - docs.txt || fail "decode of shards is another text"
[ "$(zdata decode shards --document 399)" = 'document 399' ] || fail "another last document"
ok zdata pack docs.jsonl --end 10 --shard-size 1k --split 0.9 -o both.d/
says '^both.d/train: .* documents in [45] shards$'
says "^both.d/valid: .* of $valid documents in 1 shard from 1 file$"
for f in both.d/train/*.bin; do text "$f"; done | cmp - train || fail "training shards are another text"
text both.d/valid/00000.bin | cmp - valid || fail "validation shards are another text"
# A document that is as long as two shards is cut.
seq 2000000 >long.txt
ok zdata pack long.txt docs.jsonl --shard-size 5M -o long
says '^long: .* of 401 documents in 2 shards from 2 files$'
for f in long/*.bin; do text "$f"; done | head -c "$(wc -c <long.txt)" | cmp - long.txt || fail "a long document is another"
mkdir empty
ok zdata pack docs.jsonl --shard-size 1M -o empty # takes its place

# ---- refusals leave nothing, and what was there ----
refuses 'all 1 documents are for training: none is left for validation' zdata pack long.txt --split 0.99999 -o x.bin
refuses 'shards exists and is not an empty folder' zdata pack docs.jsonl --shard-size 1k -o shards
refuses 'long.txt exists and is not an empty folder' zdata pack docs.jsonl --shard-size 1k -o long.txt
refuses 'a folder without a name' zdata pack docs.jsonl --shard-size 1k -o ''
refuses 'x/y: No such file' zdata pack docs.jsonl --shard-size 1k -o x/y
printf 'no JSON\n' >>docs.jsonl
refuses 'docs.jsonl:401: ' zdata pack docs.jsonl --shard-size 1k --split 0.9 -o x
refuses 'docs.jsonl:401: ' zdata pack docs.jsonl --split 0.9 -o x
refuses 'docs.jsonl:401: ' zdata pack docs.jsonl --split 0.9 -o a.bin
cmp a.valid.bin again.valid.bin && cmp a.train.bin again.train.bin || fail "a failed run changed what was there"
mkdir mine.partial && : >mine.partial/00000.bin # somebody's
ok zdata pack long.txt --shard-size 5M -o mine
[ "$(cd mine && echo *)" = '00000.bin 00001.bin' ] || fail "mine: $(ls mine)"
[ -f mine.partial/00000.bin ] || fail "a file of others is gone"
rm -r mine.partial
[ -z "$(ls -d x* ./*.tmp 2>/dev/null)" ] || fail "something is left: $(ls)"
for size in 0 999 x 1X k 99999999999T ''; do
  refuses "--shard-size cannot be '$size'" zdata pack long.txt --shard-size "$size" -o x
done
for split in 0 1 x 0.5x -1 nan ''; do
  refuses "--split cannot be '$split'" zdata pack long.txt --split "$split" -o x
done
refuses '--seed is for --split' zdata pack long.txt --seed 1 -o x
refuses "--seed cannot be '-1'" zdata pack long.txt --split 0.5 --seed -1 -o x
for option in '--split 0.5' '--seed 1' '--shard-size 1M'; do
  refuses "${option% *} is for texts; with --tokens" zdata pack long.txt --tokens u16 -o x $option
done
