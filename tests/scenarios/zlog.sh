# zlog: curves, where runs part, and what comes while a run goes on; and what is no metrics.jsonl.
. "$ZUG_SRC/tests/scenarios/lib.sh"

# run DIR STEPS [AWK]: a metrics.jsonl as zrun writes it; AWK may change the loss `l` of step `s`
run() {
  mkdir -p "$1"
  awk -v n="$2" 'BEGIN { for (s = 1; s <= n; s++) {
    l = 2 + 8 * exp(-s / 20)
    '"$3"'
    printf "{\"step\":%d,\"steps\":%d,\"loss\":%.9g,\"grad_norm\":%.9g,\"lr\":0.001,\"tokens\":512,\"step_ms\":36}\n", s, n, l, 1 / s
    if (s % 10 == 0) printf "{\"step\":%d,\"steps\":%d,\"eval_batches\":2,\"eval_loss\":%.9g,\"eval_ms\":40}\n", s, n, l + 0.5 } }' >"$1/metrics.jsonl"
}
run a 100
run b 100 'if (s >= 37) l += 0.001 * (s - 36)'
run c 60

# ---- plot ----
ok zlog plot a b c -o curves.svg --smooth 0.9
[ "$(grep -c '<circle' curves.svg)" -eq 26 ] || fail "not a circle for each evaluation"
[ "$(grep -c 'stroke-width="1.8".* d="M' curves.svg)" -eq 3 ] && [ "$(grep -c 'stroke-opacity' curves.svg)" -eq 3 ] || fail "not a line, and one that is pale, for each run"
# c has the losses of a, and lies on it: it has gaps, through which a is seen. b has others.
grep -A3 '^<g .*class="c2"' curves.svg | grep -q 'stroke-width="1.8" stroke-dasharray' || fail "a curve hides another"
[ "$(grep -c 'stroke-dasharray' curves.svg)" -eq 2 ] || fail "gaps in the line and the legend of one curve"
# In the dark each has another color, and so has the ground.
[ "$(grep -c '^\.c[012] { stroke: #' curves.svg)" -eq 3 ] && grep -q 'prefers-color-scheme: dark' curves.svg && grep -q '^\.ground { fill: #16' curves.svg ||
  fail "no colors for the dark"
for x in steps tokens hours; do
  ok zlog plot a c -o $x.svg --x $x --log
  ok zlog plot a c -o $x.html --x $x --y grad_norm
done
grep -q '>step</text>' steps.svg && grep -q '>tokens</text>' tokens.svg && grep -q '>seconds</text>' hours.svg || fail "what the x axis is"
grep -q '>50k</text>' tokens.svg || fail "no tick at 50k tokens: 100 steps of 512"
if command -v xmllint >/dev/null; then ok xmllint --noout ./*.svg; fi
# Without smoothing the line has every step: x of the first and the last are the ends of the plot.
ok zlog plot a -o one.svg
line=$(sed -n 's/^<path stroke-width="1.8" d="\(M.*\)".*/\1/p' one.svg)
[ "$(echo "$line" | tr -cd 'ML' | wc -c)" -eq 100 ] || fail "not 100 points: $line"
# The page holds its data: losses as they are, names that cannot end the script.
sed -n 's/^const data = //p' steps.html >data.json
mkdir -p '</script>&"'
cp a/metrics.jsonl '</script>&"'
ok zlog plot '</script>&"' -o odd.html
ok zlog plot '</script>&"' -o odd.svg
[ "$(grep -c '</script>' odd.html)" -eq 1 ] && grep -qF '&lt;/script&gt;&amp;&quot;' odd.svg || fail "a name is not escaped"
grep -q '\[1,9.6098354\]' odd.html && grep -q '\[10,6.85224528\]' odd.html || fail "not the losses in the page"
# A million steps are not a million points.
awk 'BEGIN { for (s = 1; s <= 200000; s++) printf "{\"step\":%d,\"loss\":%.4f}\n", s, s % 777 / 777 }' >many.jsonl
ok zlog plot many.jsonl -o many.svg
[ "$(wc -c <many.svg)" -lt 60000 ] || fail "$(wc -c <many.svg) bytes"
# Losses that are no numbers leave gaps; a run of them alone cannot be drawn.
run gaps 9 'if (s == 4) l = -log(0)'
sed -i 's/"loss":-\{0,1\}inf/"loss":null/' gaps/metrics.jsonl
ok zlog plot gaps -o gaps.svg
sed -n 's/^<path stroke-width="1.8" d="\(M.*\)".*/\1/p' gaps.svg | tr -cd 'M' | grep -q '^MM$' || fail "no gap"
sed 's/"loss":[^,]*/"loss":null/' a/metrics.jsonl >null.jsonl
sed -i '/eval/d' null.jsonl
refuses 'null.jsonl has no loss that can be drawn' zlog plot null.jsonl -o x.svg
refuses 'a has no nonsense that can be drawn' zlog plot a -o x.svg --y nonsense
sed 's/,"tokens":512//' a/metrics.jsonl >no_tokens.jsonl
refuses 'no_tokens.jsonl does not say how many tokens' zlog plot no_tokens.jsonl -o x.svg --x tokens
refuses 'ends with neither .svg nor .html' zlog plot a -o x.png
refuses 'is not an SVG picture or an HTML page: it is not replaced' sh -c 'echo text >x.svg; zlog plot a -o x.svg'
printf '<sv' >old.svg
refuses 'old.svg exists and is not an SVG picture' zlog plot a -o old.svg
for old in '<svg' '<?xml version' '<!doctype html' '<!DOCTYPE svg'; do
  printf '%s' "$old" >old.svg
  ok zlog plot a -o old.svg
done
grep -qx text x.svg || fail "a file is lost"

# ---- compare ----
ok zlog compare a a
says '^loss: the same in all 100 steps'
zlog compare a b >out.txt
[ $? -eq 1 ] || fail "code of runs that differ"
says 'they part at  *step 37 .*3.2578'
says 'furthest apart at  *step 100 .*0.064 apart'
says '^grad_norm: the same in all 100 steps'
ok zlog compare a b --tolerance 0.04
says 'within 0.04 of itself'
ok zlog compare a c
says '^loss: the same in all 60 steps that both have'
run later 20 's += 0' && sed -i 's/"step":/"step":9/' later/metrics.jsonl && sed -i '/eval/d' later/metrics.jsonl
awk -F'[:,]' '{ if ($2 > last) print; if ($2 > last) last = $2 }' later/metrics.jsonl >later.jsonl
sed -n '1,40p' c/metrics.jsonl >early.jsonl
refuses 'have no step in common' zlog compare early.jsonl later.jsonl

# What a loss is made of: each part by itself, where both runs say it; files of before have the loss alone.
parts() { # DIR AUX: a run whose loss has the parts main, 1, and aux, AUX from step 2 on
  mkdir -p "$1"
  for s in 1 2 3; do
    aux=0.5
    [ $s -gt 1 ] && aux=$2
    printf '{"step":%d,"steps":3,"loss":1.5,"grad_norm":1,"lr":0.1,"loss_main":1,"loss_aux":%s}\n' $s "$aux"
  done >"$1/metrics.jsonl"
  printf '{"step":3,"steps":3,"eval_batches":2,"eval_loss":2,"eval_loss_main":1.75,"eval_loss_aux":0.25,"eval_best_loss":2}\n' >>"$1/metrics.jsonl"
}
parts p 0.5 && parts q 0.25 && parts r null
sed 's/,"\(eval_\)*loss_main.*/}/' p/metrics.jsonl >before.jsonl
ok zlog compare p p
says '^loss_main: the same in all 3 steps' && says '^loss_aux: the same in all 3 steps'
zlog compare p q >out.txt
[ $? -eq 1 ] || fail "code of runs whose parts differ"
says '^loss: the same' && says '^loss_main: the same' && says '^loss_aux:$' && says 'they part at  *step 2 .* 0.5 and 0.25'
ok zlog compare p before.jsonl
! grep loss_ out.txt || fail "a part that one of them does not have"
ok zlog plot p q -o parts.svg --y loss_aux
[ "$(grep -c '<circle' parts.svg)" -eq 2 ] || fail "not a circle for each evaluation of a part"
refuses 'before.jsonl has no loss_aux that can be drawn' zlog plot before.jsonl -o x.svg --y loss_aux
ok zlog tail r -n 2 --once
says '^step 3/3  loss 1.5000 \(main 1.0000, aux -\)  grad 1  ' && says '^eval 3/3  loss 2.0000 \(main 1.7500, aux 0.2500\)$'
ok zlog tail before.jsonl -n 1 --once
says '^eval 3/3  loss 2.0000$'

# ---- what is drawn and said, to the last stroke: as tests/data/zlog has it ----
mkdir -p drawn/one 'drawn/a name that is longer than there is room for'
cat >drawn/one/metrics.jsonl <<'END'
{"step":1,"steps":8,"loss":4,"grad_norm":2,"tokens":512,"step_ms":36}
{"step":2,"steps":8,"loss":3.5,"grad_norm":1.5,"tokens":512,"step_ms":36}
{"step":2,"steps":8,"eval_batches":2,"eval_loss":3.75,"eval_ms":40}
{"step":3,"steps":8,"loss":null,"grad_norm":1,"tokens":512,"step_ms":36}
{"step":4,"steps":8,"loss":3,"grad_norm":0.75,"tokens":512,"step_ms":36}
{"step":5,"steps":8,"loss":null,"grad_norm":1,"tokens":512,"step_ms":36}
{"step":6,"steps":8,"loss":2.5,"grad_norm":0.5,"tokens":512,"step_ms":36}
{"step":7,"steps":8,"loss":2.25,"grad_norm":0.5,"tokens":512,"step_ms":36}
{"step":8,"steps":8,"loss":2.125,"grad_norm":0.5,"tokens":512,"step_ms":36}
{"step":8,"steps":8,"eval_batches":2,"eval_loss":2.25,"eval_ms":40}
END
sed '1,2s/"loss":/"loss":1/' drawn/one/metrics.jsonl >'drawn/a name that is longer than there is room for/metrics.jsonl'
(
  cd drawn
  for file in curves.svg curves.html; do zlog plot one a* -o $file --smooth 0.5; done
  zlog plot a* one -o log.svg --log --x tokens
  zlog plot one -o norm.svg --y grad_norm
  {
    for n in 1 3 9 10 11; do zlog tail one -n $n --once; done
    zlog compare one a*
    zlog compare one one --tolerance 0.1
  } >said.txt
  mkdir shown
  mv said.txt ./*.svg ./*.html shown
) || fail "what is drawn"
# `make regenerate-zlog` writes them anew: look at them before committing.
if [ "$REGENERATE" ]; then cp drawn/shown/* "$ZUG_SRC/tests/data/zlog"; fi
diff -ru "$ZUG_SRC/tests/data/zlog" drawn/shown || fail "it is drawn or said in another way"

# ---- tail ----
ok zlog tail a -n 3 --once
[ "$(wc -l <out.txt)" -eq 3 ] && says '^eval 100/100  loss 2.5539' && says '^step  99/100  loss ' || fail "not the last lines"
cp -r a live && head -n 5 a/metrics.jsonl >live/metrics.jsonl
zlog tail live >tail.txt 2>&1 &
pid=$!
until_line() { # PATTERN
  tries=0
  until grep -q -- "$1" tail.txt; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { kill $pid; cat tail.txt; fail "no line like $1"; }
    sleep 0.1
  done
}
until_line '^step   5/100'
sed -n 6p a/metrics.jsonl | head -c 30 >>live/metrics.jsonl # half a line is waited for
sleep 0.5
grep -q '^step   6' tail.txt && fail "half a line was printed"
sed -n 6p a/metrics.jsonl | tail -c +31 >>live/metrics.jsonl
sed -n 7p a/metrics.jsonl >>live/metrics.jsonl
until_line '^step   7/100'
head -n 4 a/metrics.jsonl >cut && cat cut >live/metrics.jsonl # as zrun cuts it: the same file
until_line '^-- cut after step 4: it goes on from there, and had come to 7'
sed -n 5,6p a/metrics.jsonl >>live/metrics.jsonl
mv live/metrics.jsonl live/metrics.jsonl.1
sleep 0.5
head -n 2 c/metrics.jsonl >live/metrics.jsonl
until_line '^-- another run begins'
until_line '^step  2/60'
sed 's/36}/37}/' c/metrics.jsonl | head -n 5 >cut && cat cut >live/metrics.jsonl # cut, and grown before anybody looked
until_line '^-- cut: it goes on from there, and had come to 2'
until_line '^step  5/60 .* 37 ms'
kill $pid
wait $pid
[ "$(grep -c '^step   5/100' tail.txt)" -eq 2 ] && [ "$(grep -c '^step   4/100' tail.txt)" -eq 1 ] || { cat tail.txt; fail "a line too often, or too rarely"; }

# ---- what is no metrics.jsonl ----
bad() { # PATTERN TEXT
  printf "$2" >bad.jsonl
  for command in "plot bad.jsonl -o x.html" "compare bad.jsonl a" "tail bad.jsonl --once"; do
    rm -f x.html
    refuses "$1" zlog $command
    [ ! -e x.html ] || fail "half an output"
  done
}
good='{"step":1,"loss":2}\n'
bad 'bad.jsonl:2: no JSON: nonsense' "${good}nonsense\n"
bad 'bad.jsonl:2: no JSON: $' "$good\n"
bad 'bad.jsonl:1: no JSON object: \[1\]' '[1]\n'
bad 'bad.jsonl:2: "loss" is not a number' "$good"'{"step":2,"loss":"high"}\n'
bad 'bad.jsonl:1: "step" is not a whole number' '{"step":1.5,"loss":2}\n'
bad 'bad.jsonl:1: "step" is not a whole number' '{"step":-1,"loss":2}\n'
bad 'bad.jsonl:2: its step comes after a later one' '{"step":5,"loss":2}\n'"$good"
head -c 1100000 /dev/zero | tr '\0' x >long.jsonl
refuses 'long.jsonl:1: the line has more than 1048576 bytes' zlog compare long.jsonl a
printf '%-1048576s\n' '{"step":9007199254740991,"loss":0}' >long.jsonl # as long, and as large, as may be
ok zlog compare long.jsonl long.jsonl
says '^loss: the same in all 1 steps'
printf '%-1048577s\n' '{"step":1,"loss":0}' >long.jsonl
refuses 'long.jsonl:1: the line has more than' zlog compare long.jsonl long.jsonl
bad 'bad.jsonl:1: "step" is not a whole number' '{"step":9007199254740992,"loss":2}\n'
: >empty.jsonl
refuses 'empty.jsonl has no steps' zlog plot empty.jsonl -o x.svg
refuses 'cannot open none: No such file' zlog plot none -o x.svg
mkdir hollow
refuses 'cannot open hollow/metrics.jsonl' zlog tail hollow --once
printf '%s' '{"step":1,"lo' >half.jsonl # a line that is being written is none yet
refuses 'half.jsonl has no steps' zlog plot half.jsonl -o x.svg

# ---- options ----
refuses "zlog has no command 'plott'" zlog plott
says "did you mean 'plot'"
refuses 'zlog plot needs -o' zlog plot a
refuses 'zlog compare takes 2 operands \(DIR DIR\), not 1' zlog compare a
# takes COMMAND OPTION...: with each of these
takes() {
  command=$1
  shift
  for option; do ok zlog $command $option; done
}
refused() {
  command=$1
  shift
  for option; do refuses "${option% *} cannot be '${option#* }'" zlog $command "${option% *}" "${option#* }"; done
}
takes 'plot a -o y.svg' '--smooth 0' '--smooth 0.9999' '--x steps' '--x tokens' '--x hours' '--y lr' --log
refused 'plot a -o y.svg' '--smooth 1' '--smooth -0.1' '--smooth 0.5x' '--smooth ' '--x days'
takes 'compare a b' '--tolerance 1'
refused 'compare a b' '--tolerance 1.1' '--tolerance -1'
takes 'tail a --once' '-n 0' '-n 1000000000000000' '--lines 3'
refused 'tail a --once' '--lines 10000000000000000' '--lines 2.5' '--lines -1'
for option in '--tolerance 0' '-n 1' --once; do refuses 'zlog plot takes no option' zlog plot a -o y.svg $option; done
for option in '-o y.svg' '--y lr' '--x hours' '--smooth 0' --log '-n 1' --once; do
  refuses 'zlog compare takes no option' zlog compare a b $option
done
for option in '-o y.svg' '--y lr' '--x hours' '--smooth 0' --log '--tolerance 0'; do
  refuses 'zlog tail takes no option' zlog tail a $option
done
refuses 'zlog plot takes at least 1 operand' zlog plot -o y.svg
refuses 'zlog compare takes 2 operands \(DIR DIR\), not 3' zlog compare a b c
refuses 'zlog tail takes 1 operand' zlog tail a b
refuses '^zlog: draw, compare and follow runs' zlog
ok zlog --help
esc=$(printf '\033[31m')
refuses 'x1b\[31m' zlog plot "$esc" -o x.svg
exit 0
