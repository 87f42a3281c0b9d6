# zc fmt: what it does to a file, what it leaves alone, and that a file means the same after it.
. "$ZUG_SRC/tests/scenarios/lib.sh"

# ---- what it does ----
cat >ugly.zug <<'END'


# Kept,   as it is.
use std.nn   as nn
model M(n = 2,m=n*3)
{

    axis batch,a=n   # one
      axis bb = m    # two
                     # and more of it

  input x:  real [ batch , a ]
  input xs: real[batch,a] param w[a]~normal( 0.5 )
  # before the sum
  y = x*-w+
  xs
  z = f32( max(x,
     y,  xs) )
    if n { z = -z } else
    { z = z - 1
    } loss z
      per x }
recipe r { bind batch=8 micro 2 mesh data = 2
split a*batch over data optimizer adamw( lr=1e-3,
warmup=3 )
decay 0.1 }
recipe long  from r { micro   4 }
recipe s     from r { }
cluster c { device memory 4GB
level box 8,link 4 GB/s }
weights hf for M {
  w   = "w"[ a ]
  {  i }.(u,v)="u"[3 (a b)] config { k = bool( n ) l = [ "x",2 ] }


}
END
cat >fine.zug <<'END'
# Kept,   as it is.
use std.nn as nn
model M(n = 2, m = n * 3) {
  axis batch, a = n   # one
  axis bb = m         # two
                      # and more of it

  input x:  real[batch, a]
  input xs: real[batch, a]  param w[a] ~ normal(0.5)
  # before the sum
  y = x * -w +
    xs
  z = f32(max(x,
              y, xs))
  if n { z = -z } else {
    z = z - 1
  }
  loss z
    per x
}
recipe r {
  bind batch = 8   micro 2   mesh data = 2
  split a*batch over data   optimizer adamw(lr = 1e-3,
                                            warmup = 3)
    decay 0.1
}
recipe long from r { micro 4 }
recipe s    from r { }
cluster c {
  device memory 4 GB
  level box 8, link 4 GB/s
}
weights hf for M {
  w = "w"[a]
  {i}.(u, v) = "u"[3 (a b)]  config { k = bool(n)  l = ["x", 2] }
}
END
zc fmt - <ugly.zug >out.zug || fail "exit code $?"
diff -u fine.zug out.zug || fail "not what it should be"
zc fmt - <fine.zug | diff -u fine.zug - || fail "formatting again changes it"
# Blanks of every number up to some forty.
{
  echo 'model C {'
  for n in $(seq 45); do printf '  %-60s# c\n' "$(printf "%0${n}d" 0 | tr 0 a) = x"; done
  echo '}'
} | zc fmt - | awk '/#/ && index($0, "#") != 63 { bad = 1 } END { exit bad || NR != 47 }' || fail "not in one column"
sed 's/$/\r/' ugly.zug | zc fmt - | diff -u fine.zug - || fail "lines that end as on Windows"
printf '' | zc fmt - >out.zug && [ ! -s out.zug ] || fail "nothing becomes something"
echo '#' >line.txt
printf '#' | zc fmt - | cmp - line.txt || fail "a comment without a newline"

# ---- files: safely, and only those that change ----
cp ugly.zug in.zug
chmod 640 in.zug
ln -s in.zug link.zug
refuses '^link.zug$' zc fmt --check link.zug fine.zug
[ "$(cat out.txt)" = link.zug ] || fail "--check names more than those that would change"
cmp ugly.zug in.zug || fail "--check changed a file"
ok zc fmt link.zug
cmp fine.zug in.zug || fail "the file is not what the filter says"
[ -L link.zug ] && [ "$(stat -c %a in.zug)" = 640 ] || fail "the link or the permissions are lost"
ok zc fmt --check in.zug fine.zug
touch -d '2001-01-01 UTC' in.zug
ok zc fmt in.zug
[ "$(stat -c %Y in.zug)" = 978307200 ] || fail "a file was written for nothing"
echo 'model M { axis batch input x: real[batch] loss x per }' >wrong.zug
cp wrong.zug kept.zug
cp ugly.zug in.zug
refuses 'error.Z0001.: unexpected `}`' zc fmt wrong.zug in.zug
says '^ *--> wrong.zug:1:54$'
cmp wrong.zug kept.zug || fail "a file with errors was changed"
cmp fine.zug in.zug || fail "one file with errors kept another from being formatted"
refuses '<stdin>:1' zc fmt - <wrong.zug
refuses 'no-such.zug' zc fmt no-such.zug
refuses 'zc fmt takes at least 1 operand \(FILE.zug...\), not 0' zc fmt
refuses "unrecognized option '--chek'; did you mean --check" zc fmt --chek in.zug
ls | grep '\.tmp$' && fail "a temporary file is left"

# ---- what files mean stays ----
# Of every file of the sources that has no syntax errors: the same tree, which has neither lines nor columns, and the
# same text again.
for archive in $(find "$ZUG_SRC/tests/data" -name '*.txtar'); do
  at=${archive#"$ZUG_SRC"/tests/data/}
  unpack "$archive" "unpacked/${at%.txtar}"
done
find "$ZUG_SRC/examples" "$ZUG_SRC/stdlib" "$ZUG_SRC/tests" "$PWD/unpacked" -name '*.zug' >all.txt
formatted=0 trees=0
while read -r file; do
  zc fmt - <"$file" >out.zug 2>err.txt || continue
  formatted=$((formatted + 1))
  zc fmt - <out.zug | cmp - out.zug || fail "$file: formatting again changes it"
  cp "$file" in.zug
  zc -I "${file%/*}" in.zug -d parse >before.txt 2>/dev/null
  cp out.zug in.zug
  zc -I "${file%/*}" in.zug -d parse 2>/dev/null | cmp - before.txt || fail "$file: another tree"
  [ ! -s before.txt ] || trees=$((trees + 1)) # recipes and clusters have none: see below
done <all.txt
[ "$formatted" -ge 100 ] && [ $trees -ge 80 ] || fail "only $formatted files, $trees trees"

# What the scanner and the graphs are tested with has its columns in what is expected, and stays as it is.
grep -v -e /lang/ -e /graphs/ all.txt | xargs zc fmt --check || fail "these are not as zc fmt lays them out"

# The same graph, but for lines and columns, and the same plan of a file that was not laid out.
squeeze() { sed 's/^ *//; s/   */ /g' "$ZUG_SRC/examples/$1" >"$2"; }
squeeze gpt2.zug model.zug
squeeze recipes.zug plans.zug
for i in 1 2; do
  ok zc model.zug -q -D layers=2 -D heads=2 -D width=16 -D words=64 -o model.zsg
  ok zc dump model.zsg
  sed 's/  # model.zug:[0-9]*:[0-9]*//' out.txt >graph$i.txt
  ok zplan show model.zsg --recipe plans.zug:train3d
  cp out.txt plan$i.txt
  [ $i = 2 ] || ok zc fmt model.zug plans.zug
done
grep -q 'param layer' graph1.txt || fail "no graph"
diff graph1.txt graph2.txt || fail "another graph"
diff plan1.txt plan2.txt || fail "another plan"
ok zc fmt --check model.zug plans.zug
