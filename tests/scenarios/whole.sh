# Whole numbers beyond 256 that come as `real` and are computed with in bf16: a warning names the input, a value and what to
# do. Said once; not of f32, of smaller numbers, or where not all are whole.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

model() { # TYPE
  cat >net.zug <<END
model Net {
  axis batch, a = 4
  input x: $1[batch, a]
  input y: real[batch]
  param w[a] ~ normal(0.01)
  error = dot[a](real(x) / 1000, w) - y
  loss error * error per samples()
}
END
  ok zc net.zug -o net.zsg
}
cat >recipes.zug <<'END'
recipe full { bind batch = 4   optimizer sgd(lr = 0.01) }
recipe half from full { precision compute bf16 }
recipe half_2 from half { mesh data = 2   split batch over data }
END
records() { # the first value of each, as bytes of an f32
  for _ in 1 2 3 4 5 6 7 8; do printf "$1\\000\\000\\200\\077\\000\\000\\000\\100\\000\\000\\000\\000\\000\\000\\000\\077"; done >records.raw
  ok zdata records records.raw --field x:f32:4 --field y:f32:1 -o records.bin
}
run() { ok timeout -k 5 60 $(on "${2:-1}") zrun train net.zsg --recipe recipes.zug:"$1" --data records.bin --steps 1; }
quiet() {
  run "$@"
  grep -q warning out.txt && { cat out.txt; fail "a warning without a reason: $*"; }
  return 0
}

model real
records '\000\200\200\103' # 257
run half
says 'warning: input `x` is `real`, computed with in bf16, and has whole numbers beyond 256: 257 becomes 256; declare it `f32\[..\]`'
run half_2 2
[ "$(grep -c 'warning: input' out.txt)" = 1 ] || { cat out.txt; fail 'it is said by each rank'; }
quiet full
records '\000\000\200\103' # 256
quiet half
records '\000\000\201\103' # 258, which bf16 has
quiet half
records '\000\100\200\103' # 256.5
quiet half
records '\000\200\200\103'
model f32
quiet half
exit 0
