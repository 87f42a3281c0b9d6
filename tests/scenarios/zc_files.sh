# Files that the tools read and write: nothing hangs, nothing that was there is lost, and names are shown as they are safe.
. "$ZUG_SRC/tests/scenarios/lib.sh"

echo 'model M { axis batch, a = 2  input x: real[batch, a]  loss dot[a](x, x) per dot[a](x, x) }' >m.zug
echo 'recipe r { optimizer sgd(lr = 1)  bind batch = 2 }' >r.zug
ok zc m.zug -o m.zsg
cp m.zsg first.zsg
cp m.zug first.zug

# kind PATH: as ls shows it: -, l, c, p, d.
kind() { ls -ld "$1" | cut -c 1; }
untouched() {
  cmp m.zug first.zug && cmp m.zsg first.zsg && ! ls ./*.tmp 2>/dev/null && return
  fail "after: $*"
}

# ---- a source is no output, whatever its path ----
ln m.zug hard.zug
ln -s m.zug soft.zug
mkdir sub
echo 'use part  block one(x: real[..]) -> real[..] { return part.two(x) }' >lib.zug
echo 'block two(x: real[..]) -> real[..] { return x }' >part.zug
echo 'use lib  model U { axis batch, a = 2  input x: real[batch, a]  loss dot[a](lib.one(x), x) per dot[a](x, x) }' >uses.zug
for out in m.zug ./m.zug sub/../m.zug hard.zug soft.zug "$PWD/m.zug"; do
  refuses 'would overwrite the input m.zug' zc m.zug -o "$out"
  untouched "-o $out"
done
for out in ./lib.zug part.zug; do
  cp $out kept
  refuses "-o $out would overwrite" zc uses.zug -o $out
  cmp $out kept || fail "an imported file is lost"
done
refuses 'r.zug exists and is not a stage graph: it is not replaced' zc m.zug -o r.zug
refuses 'sub exists and is not a file but a folder' zc m.zug -o sub

# ---- devices, pipes, links ----
ok zc m.zug -o /dev/null
[ "$(kind /dev/null)" = c ] || fail "/dev/null is no device any more"
if [ -w /dev/full ]; then
  ln -s /dev/full full
  refuses 'cannot write full: No space left' zc m.zug -o full
  [ "$(kind full)$(kind /dev/full)" = lc ] || fail "/dev/full is no device any more"
  refuses 'cannot write to the standard output: No space left' sh -c 'zc dump m.zsg >/dev/full'
  refuses 'cannot write to the standard output: No space left' sh -c 'zplan show m.zsg --recipe r.zug:r >/dev/full'
fi
zc m.zug -q -o /dev/stdout | cmp - m.zsg || fail "-o /dev/stdout"
mkfifo pipe
refuses 'cannot write pipe: nobody reads from it' zc m.zug -o pipe
ln -s sub/there.zsg link.zsg
ok zc m.zug -o link.zsg
[ "$(kind link.zsg)" = l ] && cmp sub/there.zsg m.zsg || fail "a link is not followed"
chmod 600 m.zsg
ok zc m.zug -o m.zsg
[ "$(ls -l m.zsg | cut -c 1-10)" = -rw------- ] || fail "other permissions: $(ls -l m.zsg)"
rm pipe

# ---- what has no end, or nobody at its other end, is not read ----
mkfifo pipe
for odd in pipe /dev/zero sub; do
  case $odd in pipe) what='a pipe' ;; sub) what='a folder' ;; *) what='a device' ;; esac
  no="$odd is not a regular file but $what"
  refuses "$no" zc $odd -o x.zsg
  refuses "$no" zc --check $odd
  refuses "$no" zc dump $odd
  refuses "$no" zplan check $odd --recipe r.zug:r
  refuses "$no" zplan check m.zsg --recipe $odd:r
  refuses "$no" zplan check m.zsg --recipe r.zug:r --cluster $odd:c
  [ $odd = sub ] || refuses "$no" zdata show $odd
  [ $odd = sub ] || refuses "$no" zdata check $odd
  refuses "$no" zdata table $odd --label a -o x.bin
  [ $odd = sub ] || refuses "$no" zdata pack $odd -o x.bin
  [ $odd = sub ] || refuses "$no" zdata records $odd --field a:u8:4 -o x.bin
done
says 'give a regular file'
refuses 'nobody writes to it' zdata pack pipe -o x.bin
refuses 'the standard input is not read' zc - -o x.zsg
echo 'use pipe' >imports.zug
cat m.zug >>imports.zug
mv pipe pipe.zug
refuses 'error.Z0004.: pipe.zug is not a regular file but a pipe' zc imports.zug -o x.zsg
mkdir walked
mv pipe.zug walked/pipe
printf 'text' >walked/text
ok zdata pack walked -o walked.bin # in folders they are passed by
says '4 tokens of 1 document from 1 file, 1 that are no text left out'
printf 'by a pipe' | ok zdata pack /dev/stdin -o piped.bin
says '9 tokens of 1 document from 1 file'
ls x.* 2>/dev/null && fail "a refusal left something"

# ---- limits, and closed streams ----
seq 1000 >many
refuses 'cannot write x.zsg: File too large' sh -c 'ulimit -f 1; exec zc m.zug -o x.zsg'
refuses 'cannot write x.bin: File too large' sh -c 'ulimit -f 1; exec zdata pack many -o x.bin'
(
  ulimit -f 1
  zc --help >limited
  zplan show m.zsg --recipe r.zug:r >limited
  zplan --help >limited
  zdata --help >limited
  zckpt --help >limited
  zlog --help >limited
) 2>said.txt
[ "$(grep -cE "cannot write to the standard output: (File too large|a part of it is lost)" said.txt)" -eq 6 ] || { cat said.txt; fail "by a signal, without a word"; }
sh -c 'exec zc m.zug -o closed.zsg >&-' 2>said.txt
cmp closed.zsg m.zsg || fail "what is printed goes into a file"
ls x.* ./*.tmp 2>/dev/null && fail "a failure left something"

# ---- names that a terminal would obey, or that are no text ----
esc=$(printf '\033[31m') bad=$(printf 'caf\351')
for name in "$esc" "$bad"; do
  for command in "zc $name -o x.zsg" "zc m.zug -o none/$name" "zc --check $name" "zc m.zug -D $name -o x" "zc m.zug -d $name" "zc dump $name" "zdata show $name" \
    "zdata pack $name -o x" "zdata $name" "zdata records m.zug --field $name -o x" "zplan check $name --recipe r.zug:r" \
    "zplan $name m.zsg --recipe r.zug:r" "zc --$name" "zplan --$name" "zdata pack --$name" \
    "zckpt show $name" "zckpt list $name" "zckpt $name" "zckpt show x --$name" "zckpt diff x x --top $name" "zlog plot $name -o x.svg" "zlog compare $name x" "zlog $name" "zlog tail x -n $name"; do
    $command >out.txt 2>&1 && fail "no refusal: $command"
    LC_ALL=C grep -q '[^[:print:][:space:]]' out.txt && { cat -v out.txt; fail "bytes as they are from: $command"; }
    grep -qF -e '\x1b[31m' -e 'caf\xe9' out.txt || { cat out.txt; fail "the name is not shown: $command"; }
  done
  cp m.zug "$name.zug"
  ok zc "$name.zug" -o "named.zsg"
  ok zc dump named.zsg # the name is in it
done
printf 'a,b\n\033[2J,1\n' >escape.csv
refuses "'.x1b\[2J' in column 'a' is not a number" zdata table escape.csv --label b -o x.bin
long=$(head -c 100000 /dev/zero | tr '\0' n)
refuses 'cannot open nnn.*n\.\.\.n.*nnn: File name too long' zdata show "$long"
[ "$(wc -c <out.txt)" -lt 1000 ] || fail "a long name makes a long message"
exit 0
