# zdata: what its commands make, and every refusal.
. "$ZUG_SRC/tests/lib.sh"

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
says '^corpus.bin: 17 tokens from 4 files, 2 that are no text left out$'
ok zdata show corpus.bin
says 'corpus.bin: 17 tokens, 145 B'
says 'tokens +u8, ids below 256, begins 102 105 114'
says 'text +first secondthird$'
ok zdata check corpus.bin
ok zdata pack docs/b.txt docs/binary -o corpus.bin # named files are taken as they are, and in this order
says '13 tokens from 2 files'
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
refuses 'pack needs a file' zdata pack -o x.bin
refuses 'pack needs -o OUT' zdata pack docs
refuses 'show takes one file' zdata show a b
refuses 'show takes no option --output' zdata show a -o b
refuses 'pack takes no option --label' zdata pack a -o b --label c
refuses '--output is given twice' zdata pack a -o b -o c
refuses '-o needs a value' zdata pack a -o
refuses 'knows no option --foo' zdata pack a --foo
refuses "--tokens cannot be 'u8'" zdata pack ids.u16 --tokens u8 -o x.bin
refuses '--vocab is for --tokens' zdata pack docs --vocab 3 -o x.bin
refuses "--vocab cannot be '-3'" zdata pack ids.u16 --tokens u16 --vocab -3 -o x.bin
refuses 'at least one --field' zdata records raw -o x.bin
refuses "--field cannot be 'a:u8'" zdata records raw --field a:u8 -o x.bin
refuses "there is no type 'u9'" zdata records raw --field a:u9:4 -o x.bin
refuses "'0' is no count" zdata records raw --field a:u8:0 -o x.bin
refuses 'multiple of 4' zdata records raw --field a:u8:3 -o x.bin
refuses 'no proper name' zdata records raw --field 1:u8:4 -o x.bin
refuses 'the name is too long' zdata records raw --field aaaaaaaaaabbbbbbbbbbccccccccccddddddddddd:u8:4 -o x.bin
refuses "two fields are named 'a'" zdata records raw --field a:u8:4 --field a:u8:4 -o x.bin
refuses 'needs --label' zdata table table.csv -o x.bin
refuses '--field is given twice' zdata table table.csv --label kind --field a --field b -o x.bin

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
refuses 'cut.bin is truncated: its header promises 17 tokens in 145 bytes, it has 140' zdata show cut.bin
{ head -c 144 corpus.bin; printf x; } >changed.bin
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
seq 70000 | sed 's/^/1,/' >labels.csv
refuses 'labels.csv:65537: more than 65536 different labels' zdata table labels.csv --label 2 -o x.bin
ls x.bin *.tmp 2>/dev/null && fail "a refusal left something"
exit 0
