# zdata: what its commands make, and every refusal.
. "$ZUG_SRC/tests/scenarios/lib.sh"

# ---- text ----
mkdir -p docs/sub docs/.hidden
printf 'second' >docs/b.txt
printf 'first ' >docs/a.txt
printf 'third' >docs/sub/c
printf 'no\0text' >docs/binary
printf 'hidden' >docs/.hidden/d
ln -s a.txt docs/link
: >docs/empty
ok zdata pack docs -o corpus.bin
says '^corpus.bin: 17 tokens of 3 documents from 4 files, 2 that are no text left out$'
says '^note: 1 empty document was left out$'
ok zdata show corpus.bin
says 'corpus.bin: 17 tokens, 184 B, 3 documents$'
says 'tokens +u8, ids below 256, begins 102 105 114'
says 'text +first secondthird$'
ok zdata check corpus.bin
ok zdata pack docs/b.txt docs/binary -o corpus.bin # named files are taken as they are, and in this order
says '13 tokens of 2 documents from 2 files'
ok zdata show corpus.bin
says 'secondno.x00text'
ok zdata pack -o corpus.bin docs # over itself; options anywhere
ls *.tmp 2>/dev/null && fail "something is left"

# ---- ids, records, tables ----
printf '\1\0\2\1\377\377' >ids.u16
ok zdata pack ids.u16 --tokens u16 -o ids.bin
ok zdata show ids.bin
says 'tokens +u16, ids below 259, begins 1 258 -1'
ok zdata pack ids.u16 --tokens u16 --vocab 300 -o ids.bin
ok zdata show ids.bin
says 'ids below 300'
printf '\1\0\0\0\0\0\200\077\377\377\377\377\0\0\0\100' >raw
ok zdata records raw --field y:i32:1 --field x:f32:1 -o raw.bin
says '2 records from 1 file'
ok zdata show raw.bin
says 'y +i32 x 1, ids below 2, begins 1$'
says 'x +f32 x 1, begins 1$'
cat >table.csv <<END
width,"a ""quoted"" name",kind

1,2.5,cat
"3", -4e2 ,dog
5,6,cat
END
ok zdata table table.csv --label kind --field image -o table.bin
says 'table.bin: 3 records: image of 2 numbers, kind of 2 classes'
says '0  cat'
ok zdata table table.csv --label 3 --label-field class -o table.bin
says 'features of 2 numbers, class of 2 classes'
printf '1,2,3\r\n4,5,-1' >plain.csv
ok zdata table plain.csv --label 3 -o plain.bin
says '2 records: features of 2 numbers, label of 4 classes'
ok zdata table plain.csv --label 2 -o plain.bin
ok zdata show plain.bin
says 'label +i32 x 1, ids below 6, begins 2'

# ---- what is in them, byte by byte: behind the header and an entry for each field, 64 bytes each ----
data() { # FILE FIELDS HEX
  found=$(od -An -v -tx1 -j $((64 * (1 + $2))) "$1" | tr -d ' \n')
  [ "$found" = "$3" ] || fail "$1 has $found, not $3"
}
data raw.bin 2 010000000000803fffffffff00000040
ok zdata table table.csv --label kind -o table.bin
data table.bin 2 0000803f0000204000000000000040400000c8c3010000000000a0400000c04000000000
ok zdata table table.csv --label 3 -o table.bin # rows as above
data table.bin 2 0000803f0000204000000000000040400000c8c3010000000000a0400000c04000000000
ok zdata table plain.csv --label 3 -o plain.bin
data plain.bin 2 0000803f0000004003000000000080400000a040ffffffff
# Cells as RFC 4180 has them, rows that end in many ways, blanks behind numbers; classes are in order.
printf 'b "x",1 \r\n\n\r\n"a,\n""b""",2\t\r\n"q" r,-3e0\n"",4\n' | sed '$d' >cells.csv
ok zdata table cells.csv --label 1 -o cells.bin
says '^cells.bin: 3 records: features of 1 numbers, label of 3 classes$'
says '^  0  a,.nb"$|^  0  a,.n"b"$'
says '^  1  b "x"$'
says '^  2  q r$'
data cells.bin 2 0000803f010000000000004000000000000040c002000000
printf '1,b\n2,3\n' >named.csv # one name that is not a number makes a header
ok zdata table named.csv --label b -o named.bin
data named.bin 2 0000004003000000
printf 'a,b\n\n"1\n2",x\n\n3,\n' >lines.csv
refuses 'lines.csv:6: the label is empty' zdata table lines.csv --label b -o x.bin
long=x$(printf "%039d" 0)
ok zdata table plain.csv --label 3 --field "${long%0}" -o plain.bin
refuses "'$long' is too long for a field's name" \
  zdata table plain.csv --label 3 --field "$long" -o plain.bin
printf '""' >empty.csv # one cell, of nothing, and no end of the line
refuses "empty.csv has no column beside '1'" zdata table empty.csv --label 1 -o x.bin
# Labels that are whole numbers from -1 are their own ids; any other makes classes of all.
printf '1,2147483646\n2,-1\n3,0\n' >ids.csv
ok zdata table ids.csv --label 2 -o ids.csv.bin
says 'label of 2147483647 classes'
data ids.csv.bin 2 0000803ffeffff7f00000040ffffffff0000404000000000
for odd in 2147483647 -2 0.5 '1 2'; do
  printf '1,0\n2,%s\n' "$odd" >odd.csv
  ok zdata table odd.csv --label 2 -o odd.bin
  says 'label of 2 classes'
  says "^  [01]  $odd$"
done
seq 120 | sed 's/.*/&,c&/' >classes.csv
ok zdata table classes.csv --label 2 -o classes.bin
says 'of 120 classes'
[ "$(grep -c '^  [0-9][0-9]*  c' out.txt)" -eq 100 ] || fail "not the first hundred classes"

# More than is read at a time; the largest id is the last, or before the unknown ones.
seq 40000 >many.txt
ok zdata pack many.txt -o many.bin
tail -c +129 many.bin | cmp - many.txt || fail "a long text is another"
ok zdata check many.bin
says '^many.bin: as it was written$'
{ cat many.txt && printf 'zz'; } >many.u16
[ $(($(wc -c <many.u16) % 2)) -eq 0 ] || printf z >>many.u16
ok zdata pack many.u16 --tokens u16 -o many.bin
tail -c +129 many.bin | cmp - many.u16 || fail "long tokens are others"
ok zdata show many.bin
says "tokens +u16, ids below $((0x7a7a + 1)), begins( [0-9]+){12}$"
printf '\5\0\0\0\377\377\377\377\377\377\377\177\4\0\0\0' >ids.u32
ok zdata pack ids.u32 --tokens u32 -o ids.bin
ok zdata show ids.bin
says 'tokens +u32, ids below 2147483648, begins 5 -1 2147483647 4$'
ok zdata records ids.u32 --field i:i32:2 --field w:u32:1 --field b:u8:4 -o fields.bin
data fields.bin 3 05000000ffffffffffffff7f04000000
ok zdata show fields.bin
says '^fields.bin: 1 records, 272 B$'
says '^  i       i32 x 2, ids below 6, begins 5 -1$'
says '^  w       u32 x 1, ids below 2147483648, begins 2147483647$'
says '^  b       u8 x 4, ids below 5, begins 4 0 0 0$'
printf '\377\377\377\377' >unknown
ok zdata records unknown --field y:i32:1 -o unknown.bin
ok zdata show unknown.bin
says '^  y       i32 x 1, begins -1$'
printf '\5\0\0\0\376\377\377\377' >below # -2 is no id
ok zdata records below --field y:i32:1 -o below.bin
ok zdata show below.bin
says '^  y       i32 x 1, ids below 6, begins 5$'
printf '\0\037 ~\177\n\200%060d' 0 >bytes
ok zdata pack bytes -o bytes.bin
ok zdata show bytes.bin
says '^  text    .x00.x1f ~.x7f.n.x800{53}$'
# Of many files few are open at a time.
mkdir several
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo $i >several/$i; done
ok sh -c 'ulimit -n 12; exec zdata pack several -o several.bin'
rm -r several
# A NUL among the first 8 KiB tells that it is not text.
mkdir looked
{ head -c 8191 /dev/zero | tr '\0' a; printf '\0'; } >looked/binary
{ head -c 8192 /dev/zero | tr '\0' b; printf '\0'; } >looked/text
ok zdata pack looked -o looked.bin
says '^looked.bin: 8193 tokens of 1 document from 1 file, 1 that are no text left out$'
rm -r looked

# ---- help ----
ok zdata --help
says 'zdata pack PATH... -o OUT'
ok zdata pack -h
zdata >out.txt 2>&1 && fail "no command is no success"
says 'zdata pack PATH'

# ---- refusals: the command line ----
refuses "zdata has no command 'pak'" zdata pak
says "help: did you mean 'pack'"
refuses "has no command 'x'" zdata x
refuses 'pack takes at least 1 operand' zdata pack -o x.bin
refuses 'pack needs -o OUT' zdata pack docs
refuses 'show takes 1 operand \(OUT\), not 2' zdata show a b
refuses 'show takes no option --output' zdata show a -o b
refuses 'pack takes no option --label' zdata pack a -o b --label c
refuses '--output is given twice' zdata pack a -o b -o c
refuses "option requires an argument -- 'o'" zdata pack a -o
refuses "unrecognized option '--foo'" zdata pack a --foo
refuses "option '--jsonl' doesn't allow an argument" zdata pack a --jsonl=yes
refuses "--tokens cannot be 'u8'" zdata pack ids.u16 --tokens u8 -o x.bin
refuses '--vocab is for --tokens' zdata pack docs --vocab 3 -o x.bin
refuses "--vocab cannot be '-3'" zdata pack ids.u16 --tokens u16 --vocab -3 -o x.bin
refuses 'needs --field' zdata records raw -o x.bin
refuses "--field cannot be 'a:u8'" zdata records raw --field a:u8 -o x.bin
refuses "there is no type 'u9'" zdata records raw --field a:u9:4 -o x.bin
refuses "'0' is not a count" zdata records raw --field a:u8:0 -o x.bin
refuses 'multiple of 4' zdata records raw --field a:u8:3 -o x.bin
refuses 'no proper name' zdata records raw --field 1:u8:4 -o x.bin
refuses 'the name is too long' zdata records raw --field aaaaaaaaaabbbbbbbbbbccccccccccddddddddddd:u8:4 -o x.bin
refuses "two fields are named 'a'" zdata records raw --field a:u8:4 --field a:u8:4 -o x.bin
refuses 'needs --label' zdata table table.csv -o x.bin
refuses '--field is given twice' zdata table table.csv --label kind --field a --field b -o x.bin

refuses "--vocab cannot be '0'" zdata pack ids.u16 --tokens u16 --vocab 0 -o x.bin
refuses "--vocab cannot be '5x'" zdata pack ids.u16 --tokens u16 --vocab 5x -o x.bin
refuses "--vocab cannot be '18446744073709551616'" zdata pack ids.u16 --tokens u16 --vocab 18446744073709551616 -o x.bin
refuses "--field a::4: there is no type ''" zdata records raw --field a::4 -o x.bin
refuses "--field cannot be 'a'" zdata records raw --field a -o x.bin
zdata >out.txt 2>&1
[ $? -eq 2 ] || fail "no command is a mistake of code 2"
# Every option with every command that does not take it, and twice where it is taken.
for command in pack:--label:--label-field records:--tokens:--vocab:--label:--label-field:--end table:--tokens:--vocab:--end \
  show:--output:--tokens:--vocab:--field:--label:--label-field check:--output:--tokens:--vocab:--field:--label:--label-field; do
  for option in $(echo "${command#*:}" | tr ':' ' '); do
    refuses "zdata ${command%%:*} takes no option $option" zdata "${command%%:*}" raw "$option" 1
  done
done
for command in records table show check; do
  for option in --jsonl --skip-bad; do refuses "zdata $command takes no option $option" zdata $command raw $option; done
done
refuses '--skip-bad is given twice' zdata pack raw --skip-bad --skip-bad
for twice in pack:--end pack:--vocab table:--label table:--label-field records:--output; do
  refuses "${twice#*:} is given twice" zdata "${twice%:*}" raw "${twice#*:}" 1 "${twice#*:}" 1
done
for command in pack records table show check; do refuses "zdata $command takes .*1 operand .*, not 0" zdata $command; done
for command in table show check; do refuses "zdata $command takes 1 operand .*, not 2" zdata $command raw raw; done
for command in pack records table; do refuses "zdata $command needs -o OUT" zdata $command raw; done

# ---- refusals: files ----
refuses 'cannot open none: No such file' zdata pack none -o x.bin
refuses 'docs is a folder' zdata pack docs --tokens u16 -o x.bin
refuses 'nothing to pack' zdata pack docs/empty -o x.bin
refuses 'not consist of whole tokens of 2 bytes: 1 are left over' zdata pack docs/sub/c --tokens u16 -o x.bin
refuses 'has the id 258; --vocab says that ids are below 258' zdata pack ids.u16 --tokens u16 --vocab 258 -o x.bin
refuses 'not consist of whole records of 12 bytes: 4 are left over' zdata records raw --field a:u8:12 -o x.bin
refuses 'docs/binary exists and is not a token file' zdata pack docs -o docs/binary
refuses '-o docs/a.txt would overwrite docs/a.txt, from which it is made' zdata pack docs -o docs/a.txt
ln corpus.bin hard.bin
refuses '-o hard.bin would overwrite ./corpus.bin, from which' zdata pack ./corpus.bin -o hard.bin
refuses '-o table.csv would overwrite table.csv' zdata table table.csv --label kind -o table.csv
refuses 'docs exists and is not a file' zdata pack docs -o docs
refuses '/dev/null exists and is not a file' zdata pack docs -o /dev/null
refuses 'cannot create none/x.bin: No such file' zdata pack docs -o none/x.bin
refuses 'is not a token file' zdata show docs/a.txt
head -c 140 corpus.bin >cut.bin
refuses 'cut.bin is truncated: its header promises 17 tokens in 184 bytes, it has 140' zdata show cut.bin
{ head -c 144 corpus.bin; printf x; tail -c +146 corpus.bin; } >changed.bin
refuses 'changed.bin is damaged: the checksum of its tokens differs' zdata check changed.bin
head -c 100000 /dev/zero >big.txt
refuses 'cannot write x.bin: File too large' sh -c "ulimit -f 8; exec zdata pack big.txt -o x.bin"
if [ -w /dev/full ]; then
  refuses 'cannot write to the standard output: No space left' sh -c 'zdata show corpus.bin >/dev/full'
fi

# ---- refusals: tables ----
refuses "no column 'kin'" zdata table table.csv --label kin -o x.bin
says "did you mean 'kind'"
refuses "no column '4', and no first row with names" zdata table plain.csv --label 4 -o x.bin
refuses "plain.csv has no column 'x', and no first row" zdata table plain.csv --label x -o x.bin
refuses "'cat' in column 'kind' is not a number" zdata table table.csv --label width -o x.bin
printf 'a,b\n1,2\n3\n' >short.csv
refuses 'short.csv:3: 1 columns, where the first row has 2' zdata table short.csv --label a -o x.bin
printf 'a,b\n1,2\n3\n4,5,6\n,7\n' >first.csv
refuses 'first.csv:3: 1 columns, where the first row has 2' zdata table first.csv --label a -o x.bin # the first mistake
printf 'a,b\n1,\n' >hole.csv
refuses 'hole.csv:2: the label is empty' zdata table hole.csv --label b -o x.bin
refuses "hole.csv:2: '' in column 'b' is not a number" zdata table hole.csv --label a -o x.bin
printf 'a,b\n1,inf\n' >inf.csv
refuses "'inf' in column 'b' is not a number" zdata table inf.csv --label a -o x.bin
printf 'a,b\n' >head.csv
refuses 'no rows but the names' zdata table head.csv --label a -o x.bin
printf 'a\n1\n' >one.csv
refuses "no column beside 'a'" zdata table one.csv --label a -o x.bin
printf 'a,"b\n1,2\n' >quote.csv
refuses 'quote.csv:1: a quote is not closed' zdata table quote.csv --label a -o x.bin
printf 'a,b\n1,\0002\n' >nul.csv
refuses 'nul.csv:2: a NUL byte' zdata table nul.csv --label a -o x.bin
: >nothing.csv
refuses 'nothing.csv is empty' zdata table nothing.csv --label a -o x.bin
printf 'a b,c\n1,2\n' >space.csv
refuses 'field 1 has no proper name' zdata table space.csv --label 'a b' -o x.bin
{ printf '1,"'; head -c 67108880 /dev/zero | tr '\0' a; } >long.csv
refuses 'long.csv:1: a row of more than 67108864 bytes' zdata table long.csv --label 1 -o x.bin
{ head -c 67108864 /dev/zero | tr '\0' a; echo; } >long.csv
refuses "long.csv has no column 'a'" zdata table long.csv --label a -o x.bin
rm long.csv
seq 70000 | sed 's/^/1,/' >labels.csv
refuses 'labels.csv:65537: more than 65536 different labels' zdata table labels.csv --label 2 -o x.bin
ls x.bin *.tmp 2>/dev/null && fail "a refusal left something"
exit 0
