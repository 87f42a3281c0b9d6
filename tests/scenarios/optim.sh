# The optimizers, held to their formulas: least squares on four features, whose gradients awk works out in doubles from the
# same data. Eight steps: an error of one step, such as decay that goes through the momentum (2e-2 here), adds up.
# Tolerance: f32 parameters near 1 and some ten roundings a step, 2e-6.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

cat >line.zug <<'END'
model Line {
  axis batch, a = 4
  input x: real[batch, a]
  input y: real[batch]
  input t: index(a)[batch]
  param w[a] = 0.5
  param v[a] = 0.25 tag plain
  error = dot[a](x, w) + dot[a](x * x, v) - y
  loss error * error per known(t)
}
END
cat >recipes.zug <<'END'
recipe one { bind batch = 4   micro 2 }
recipe sgd from one { optimizer sgd(lr = 0.02, momentum = 0.9, warmup = 3) decay 0.5 except plain   clip 2 }
recipe bare from one { optimizer sgd(lr = 0.02) decay 0.5 except plain }
recipe adamw from one { optimizer adamw(lr = 0.02, b1 = 0.9, b2 = 0.95, eps = 1e-6, warmup = 3) decay 0.5 except plain }
recipe sgd_2 from sgd { mesh data = 2   split batch over data   shard params, grads, states over data }
recipe parts from one { optimizer adamw(lr = 0.02, b1 = 0.9, b2 = 0.95, eps = 1e-6, warmup = 3) decay 0.5 for w, rate 0.25 for plain }
recipe both from one { optimizer adamw(lr = 0.02, b1 = 0.9, b2 = 0.95, eps = 1e-6, warmup = 3) decay 0.5   optimizer sgd(lr = 0.01, momentum = 0.9, warmup = 2) for v }
recipe both_2 from both { mesh data = 2   split batch over data   shard params, grads, states over data }
recipe two_2 from parts { mesh data = 2   split batch over data   shard states over data }
recipe stable from one { optimizer sgd(lr = 0.02, warmup = 2, stable = 2, anneal = linear, until = 8, final = 0.25) decay 0.5 except plain }
recipe lion from one { optimizer lion(lr = 0.02, b1 = 0.9, b2 = 0.75, warmup = 3) decay 0.5 except plain }
recipe lion_2 from lion { mesh data = 2   split batch over data   shard params, grads, states over data }
recipe still from sgd { optimizer sgd(lr = 0, momentum = 0.9) decay 0.5 }
END

# 32 samples: four features, a value, a target that is known; as numbers, and as bytes of a record.
awk 'BEGIN {
  split("1 0.5 -1 2 -0.5", x)
  split("\\000\\000\\200\\077 \\000\\000\\000\\077 \\000\\000\\200\\277 \\000\\000\\000\\100 \\000\\000\\000\\277", bytes)
  for (s = 0; s < 32; s++) {
    for (i = 0; i < 5; i++) {
      k = (s * 7 + i * 3 + int(s / 3) * i) % 5 + 1
      printf "%s%s", x[k], i < 4 ? " " : "\n" >"numbers.txt"
      printf "%s", bytes[k]
    }
    printf "\\000\\000\\000\\000"
  }
}' >escapes.txt
printf "$(cat escapes.txt)" >records.raw
ok zdata records records.raw --field x:f32:4 --field y:f32:1 --field t:i32:1 -o records.bin
says '32 records'
ok zc line.zug -o line.zsg

# wanted KIND LR MOMENTUM WARMUP CLIP DECAY [KIND2 RATE2 WARMUP2]: w and v after 8 steps; of v another optimizer, or another rate
wanted() {
  awk -v kind="$1" -v rate="$2" -v momentum="$3" -v warmup="$4" -v clip="$5" -v decay="$6" -v kind2="${7-$1}" -v rate2="${8-$2}" -v warmup2="${9-$4}" -v from="${10-99}" '
    { for (i = 1; i <= 5; i++) x[NR - 1, i] = $i }
    END {
      for (i = 1; i <= 8; i++) p[i] = i <= 4 ? 0.5 : 0.25
      for (step = 1; step <= 8; step++) {
        for (i = 1; i <= 8; i++) g[i] = 0
        for (s = 4 * step - 4; s < 4 * step; s++) {
          e = -x[s, 5]
          for (i = 1; i <= 4; i++) e += x[s, i] * p[i] + x[s, i] ^ 2 * p[i + 4]
          for (i = 1; i <= 4; i++) g[i] += 2 * e * x[s, i] / 4
          for (i = 1; i <= 4; i++) g[i + 4] += 2 * e * x[s, i] ^ 2 / 4
        }
        norm = 0
        for (i = 1; i <= 8; i++) norm += g[i] ^ 2
        scale = clip && sqrt(norm) > clip ? clip / (sqrt(norm) + 1e-6) : 1
        lr = step < warmup ? rate * step / warmup : rate
        lr2 = step < warmup2 ? rate2 * step / warmup2 : rate2
        if (step > from) lr = lr2 = rate * (0.25 + 0.75 * (1 - (step - from) / (8 - from)))
        for (i = 1; i <= 8; i++) {
          if ((i <= 4 ? kind : kind2) == "sgd") {
            m[i] = momentum * m[i] + scale * g[i]
            u = m[i]
          } else if ((i <= 4 ? kind : kind2) == "lion") {
            c = 0.9 * m[i] + 0.1 * scale * g[i]
            m[i] = 0.75 * m[i] + 0.25 * scale * g[i]
            u = c > 0 ? 1 : c < 0 ? -1 : 0
          } else {
            m[i] = 0.9 * m[i] + 0.1 * g[i]
            v[i] = 0.95 * v[i] + 0.05 * g[i] ^ 2
            u = m[i] / (1 - 0.9 ^ step) / (sqrt(v[i] / (1 - 0.95 ^ step)) + 1e-6)
          }
          p[i] -= (i <= 4 ? lr : lr2) * (u + (i <= 4 ? decay : 0) * p[i])
        }
      }
      for (i = 1; i <= 8; i++) printf "%.9g\n", p[i]
    }' numbers.txt >wanted.txt
}

# trained RECIPE RANKS: what it saves must be what is wanted, up to rounding
trained() {
  ok timeout -k 5 60 $(on "$2") zrun train line.zsg --recipe recipes.zug:"$1" --data records.bin --order sequential \
    --steps 8 --save "$1.safetensors"
  head -c 400 "$1.safetensors" | grep -aq '"w":[^}]*"data_offsets":\[0,16\]' || fail "$1: its file does not begin with w"
  od -An -v -t f4 -w4 -j $(($(od -An -t u8 -N 8 "$1.safetensors") + 8)) "$1.safetensors" >found.txt
  paste found.txt wanted.txt | awk '{ d = $1 - $2; if (!(d * d < 4e-12)) bad = 1; print } END { exit bad || NR != 8 }' >both.txt ||
    { cat both.txt; fail "$1: parameters after 8 steps (found, expected)"; }
}

wanted sgd 0.02 0.9 3 2 0.5
trained sgd 1
trained sgd_2 2
wanted sgd 0.02 0 0 0 0.5
trained bare 1
wanted adamw 0.02 0 3 0 0.5
trained adamw 1
wanted adamw 0.02 0 3 0 0.5 adamw 0.005 3 # the same optimizer at a quarter of its rate
trained parts 1
trained two_2 2
wanted adamw 0.02 0.9 3 0 0.5 sgd 0.01 2 # another optimizer for v
trained both 1
trained both_2 2
wanted sgd 0.02 0 2 0 0.5 sgd 0.02 2 4 # constant for two steps after the warm-up, then down
trained stable 1
wanted lion 0.02 0 3 0 0.5
trained lion 1
trained lion_2 2
wanted sgd 0 0.9 0 0 0.5 # a rate of 0 changes nothing, decay or not
trained still 1
exit 0
