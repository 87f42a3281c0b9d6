# What a run prints: lines for files, every so many steps or none; on a terminal one line that is kept up to date, which
# nothing tears.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

sed 's/ kv,//' "$ZUG_SRC/tests/data/models/layouts.zug" | sed '/^recipe gqa/,$d' >recipes.zug
head -c 8000 "$ZUG_SRC/LICENSE" >text
ok zdata pack text -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=4 -D heads=4 -D width=32 -D context=32 -D words=127
train="$MPIRUN -np 2 zrun train gpt2.zsg --recipe recipes.zug:pipe2 --data text.bin --steps 12 --eval text.bin --eval-batches 1 --eval-every 6"
steps() { sed -n 's/^step *\([0-9]*\)\/12 .*/\1/p' out.txt | tr '\n' ' '; }

# ---- files ----
ok timeout -k 5 100 $train
[ "$(steps)" = '1 2 3 4 5 6 7 8 9 10 11 12 ' ] && says '^eval  6/12' || { cat out.txt; fail "not a line a step"; }
LC_ALL=C grep -q "$(printf '\033\|\r')" out.txt && fail "a terminal's codes in a file"
ok timeout -k 5 100 $train --print-every 5
[ "$(steps)" = '1 5 10 12 ' ] && says '^eval 12/12' || { cat out.txt; fail "not steps 1, 5, 10 and 12"; }
ok timeout -k 5 100 $train --quiet --log quiet --ckpt kept
[ ! -s out.txt ] || { cat out.txt; fail "--quiet prints something"; }
[ "$(wc -l <quiet/metrics.jsonl)" -eq 14 ] || fail "--quiet is no matter of the log's"
refuses '--print-every cannot be .0.' $train --print-every 0
refuses 'zrun eval takes no option --quiet' $MPIRUN -np 2 zrun eval gpt2.zsg --recipe recipes.zug:pipe2 --data text.bin --init x --quiet

# ---- a terminal ----
command -v script >/dev/null && command -v stty >/dev/null || exit 0
# on COLUMNS COMMAND...: the command on a terminal of such a width; what it sent there is in screen.txt, without the
# terminal's own carriage returns
on() {
  columns=$1
  shift
  timeout -k 5 100 script -qec "stty cols $columns; $*" screen.raw </dev/null >/dev/null || { cat screen.raw; fail "code of $*"; }
  sed -e '/^Script /d' -e 's/\r$//' screen.raw >screen.txt
}
# What is left to be seen: each line after what its last carriage return or erasure left of it.
seen() {
  awk '{ n = split($0, part, "\r"); line = ""
    for (i = 1; i <= n; i++) { p = part[i]; at = 0
      while ((k = index(p, "\033[K")) > 0) { at += k - 1; line = substr(part[i], 1, at); p = substr(p, k + 3); part[i] = substr(line, 1, at) p }
      line = p == "" && part[i] == "" ? line : part[i] substr(line, length(part[i]) + 1) }
    print line }' screen.txt
}
on 200 "$train"
seen >out.txt
grep -q "$(printf '\r')step 11/12  loss 4[.0-9]*  [0-9]* tok/s  0s left$(printf '\033')" screen.txt || { cat -v screen.txt; fail "no line that is kept up to date"; }
[ "$(steps)" = '12 ' ] && says '^eval  6/12 ' && says '^eval 12/12 ' && says '^planned == used' || { cat -v screen.txt; cat out.txt; fail "not what is to be seen at the end"; }
grep -q '^step.* left' out.txt && { cat -v out.txt; fail "the line stays"; }
# A narrow one: the line does not reach its end.
on 30 "$train --print-every 6"
seen >out.txt
[ "$(steps)" = '1 6 12 ' ] || { cat out.txt; fail "not steps 1, 6 and 12"; }
tr '\r' '\n' <screen.txt | sed -n "s/\(step [0-9]*\/12  loss.*\)$(printf '\033').*/\1/p" | awk 'length > 29 { exit 1 } END { exit NR < 9 }' || { cat -v screen.txt; fail "the line is broken"; }
# Not a terminal but a file behind the launcher.
on 80 "$train >file.txt"
cp file.txt out.txt
[ "$(steps)" = '1 2 3 4 5 6 7 8 9 10 11 12 ' ] || { cat out.txt; fail "a file is no terminal"; }
# A run that stops says which step was its last.
on 80 "$train --steps 1000000 --log stopped & while [ ! -s stopped/metrics.jsonl ]; do sleep 0.1; done; kill -USR1 \$!; wait \$!; test \$? -ne 0"
seen >out.txt
grep -A 1 '^step' out.txt | grep -q '^planned == used' || { cat out.txt; fail "no line of the last step"; }
exit 0
