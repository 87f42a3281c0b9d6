# Muon. By its formula: a tiny net whose gradients and orthogonalisations python works out in doubles, positional and with
# matrices as lists of rows. Tolerance 1e-5: f32, and five steps of Newton and Schulz, which take a small singular value to
# 480 times itself, with its rounding error.
# In every kind of layout: losses and norms as on one rank, within 1e-6 (seen: 8e-8).
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

cat >net.zug <<'END'
model Net {
  axis batch, a = 4, h = 2, b = 5
  input x: real[batch, a]
  input y: real[batch]
  input t: index(a)[batch]
  param w[a, h, b] ~ normal(0.5)
  param u[h, b] ~ normal(0.5) tag out
  error = dot[h, b](tanh(dot[a](x, w)), u) - y
  loss error * error per known(t)
}
END
cat >recipes.zug <<'END'
recipe base { bind batch = 8   micro 4   optimizer sgd(lr = 0) }
recipe still from base { optimizer sgd(lr = 0) for w }
recipe plain from base { optimizer muon(lr = 0.02, momentum = 0.9, nesterov = off, warmup = 3) for w decay 0.5 }
recipe nesterov from base { optimizer muon(lr = 0.02, momentum = 0.9) for w }
recipe rms from base { optimizer muon(lr = 0.02, scale = rms, steps = 3) for w }
recipe heads from base { optimizer muon(lr = 0.02, each = h) for w   clip 0.5 }
recipe many from base { optimizer muon(lr = 0.02, each = h, each = b) for w   clip 0.5 }
recipe zero3_2 from plain { mesh data = 2   split batch over data   micro 2   shard params, grads, states over data }
recipe zero1_2 from rms { mesh data = 2   split batch over data   micro 2   shard states over data }
recipe rows_2 from plain { mesh tensor = 2   split h over tensor }
recipe cols_2 from nesterov { mesh tensor = 2   split a over tensor }
recipe each_2 from heads { mesh tensor = 2   split h over tensor }
recipe both_4 from heads { mesh data = 2, tensor = 2   split batch over data   split b over tensor   pad b to 6   micro 2   shard grads, states over data }
recipe many_4 from many { mesh data = 2, tensor = 2   split batch over data   split h over tensor   micro 2   shard grads, states over data }
END
awk 'BEGIN {
  split("1 0.5 -1 2 -0.5", x)
  split("\\000\\000\\200\\077 \\000\\000\\000\\077 \\000\\000\\200\\277 \\000\\000\\000\\100 \\000\\000\\000\\277", bytes)
  for (s = 0; s < 48; s++) {
    for (i = 0; i < 5; i++) {
      k = (s * 7 + i * 3 + int(s / 3) * (i + 1)) % 5 + 1
      printf "%s%s", x[k], i < 4 ? " " : "\n" >"numbers.txt"
      printf "%s", bytes[k]
    }
    printf "\\000\\000\\000\\000"
  }
}' >escapes.txt
printf "$(cat escapes.txt)" >records.raw
ok zdata records records.raw --field x:f32:4 --field y:f32:1 --field t:i32:1 -o records.bin
says '48 records'
ok zc net.zug -o net.zsg

cat >judge.py <<'END'
import json, math, struct, sys
first, last, momentum, nesterov, warmup, decay, shape, steps, each, clip = sys.argv[1:]
momentum, warmup, decay, steps, clip = float(momentum), int(warmup), float(decay), int(steps), float(clip)
A, H, B, lr = 4, 2, 5, 0.02
def read(path):
    data = open(path, 'rb').read()
    n = struct.unpack('<Q', data[:8])[0]
    at = {k: v['data_offsets'] for k, v in json.loads(data[8:8 + n]).items() if k != '__metadata__'}
    return [list(struct.unpack('<%df' % ((j - i) // 4), data[8 + n + i:8 + n + j])) for i, j in (at['w'], at['u'])]
def mul(x, y): return [[sum(p * q for p, q in zip(r, c)) for c in zip(*y)] for r in x]
def orthogonal(x):
    size = math.sqrt(sum(v * v for r in x for v in r))
    x = [[v / (size + 1e-7) for v in r] for r in x]
    for _ in range(steps):
        g = mul(x, list(zip(*x)))
        gg = mul(g, g)
        p = [[-4.7750 * s + 2.0315 * t for s, t in zip(*r)] for r in zip(g, gg)]
        x = [[3.4445 * s + t for s, t in zip(*r)] for r in zip(x, mul(p, x))]
    return x
def matrices():  # rows come out, columns go in: of each, where its elements lie
    if each == 'h': return [[[a * H * B + h * B + b for a in range(A)] for b in range(B)] for h in range(H)]
    if each == 'hb': return [[[a * H * B + o for a in range(A)]] for o in range(H * B)]
    return [[[a * H * B + o for a in range(A)] for o in range(H * B)]]
data = [list(map(float, l.split())) for l in open('numbers.txt')]
(w, u), (found, _) = read(first), read(last)
m = [0.0] * len(w)
for step in range(1, 7):
    g, rate = [0.0] * len(w), lr * min(1, step / warmup) if warmup else lr
    for *x, y in data[8 * step - 8:8 * step]:
        z = [math.tanh(sum(x[a] * w[a * H * B + o] for a in range(A))) for o in range(H * B)]
        e = sum(p * q for p, q in zip(z, u)) - y
        for a in range(A):
            for o in range(H * B): g[a * H * B + o] += 2 * e * u[o] * (1 - z[o] ** 2) * x[a] / 8
    gu = [0.0] * (H * B)
    for *x, y in data[8 * step - 8:8 * step]:
        z = [math.tanh(sum(x[a] * w[a * H * B + o] for a in range(A))) for o in range(H * B)]
        e = sum(p * q for p, q in zip(z, u)) - y
        for o in range(H * B): gu[o] += 2 * e * z[o] / 8
    norm = math.sqrt(sum(v * v for v in g) + sum(v * v for v in gu))
    if clip and norm > clip: g = [v * clip / (norm + 1e-6) for v in g]
    m = [momentum * p + q for p, q in zip(m, g)]
    t = [q + momentum * p for p, q in zip(m, g)] if nesterov == 'on' else m
    for x in matrices():
        rows, cols = len(x), len(x[0])
        s = 0.2 * math.sqrt(max(rows, cols)) if shape == 'rms' else math.sqrt(max(1, rows / cols))
        for places, values in zip(x, orthogonal([[t[i] for i in r] for r in x])):
            for i, v in zip(places, values): w[i] -= rate * (s * v + decay * w[i])
worst = max(abs(p - q) for p, q in zip(w, found))
print('worst', worst)
sys.exit(not worst < 1e-5)
END

net() { # RECIPE RANKS: saved as RECIPE.safetensors
  ok timeout -k 5 60 $(on "$2") zrun train net.zsg --recipe recipes.zug:"$1" --data records.bin --order sequential \
    --steps 6 --save "$1.safetensors"
}
judged() { # RECIPE RANKS SETTINGS...
  net "$1" "$2"
  python3 judge.py still.safetensors "$1.safetensors" "$3" "$4" "$5" "$6" "$7" "$8" "$9" "${10}" >worst.txt ||
    { cat worst.txt; fail "$1: other parameters after 6 steps"; }
}
net still 1
for recipe in plain zero3_2 rows_2; do judged $recipe "$(echo $recipe | sed -n 's/.*_//p' | grep . || echo 1)" 0.9 off 3 0.5 shape 5 '' 0; done
for recipe in nesterov cols_2; do judged $recipe "$(echo $recipe | sed -n 's/.*_//p' | grep . || echo 1)" 0.9 on 0 0 shape 5 '' 0; done
for recipe in rms zero1_2; do judged $recipe "$(echo $recipe | sed -n 's/.*_//p' | grep . || echo 1)" 0.95 on 0 0 rms 3 '' 0; done
for recipe in heads each_2 both_4; do judged $recipe "$(echo $recipe | sed -n 's/.*_//p' | grep . || echo 1)" 0.95 on 0 0 shape 5 h 0.5; done
for recipe in many many_4; do judged $recipe "$(echo $recipe | sed -n 's/.*_//p' | grep . || echo 1)" 0.95 on 0 0 shape 5 hb 0.5; done

# What is no matrix, and what no matrix has; and where it does not run.
bad() { printf 'recipe r { bind batch = 8   micro 4   optimizer sgd(lr = 0)   %s }\n' "$1" >bad.zug; }
bad 'optimizer muon(lr = 1) for u, w'
refuses 'Z0805.*matrices, and parameter `u` is not one' zplan check net.zsg --recipe bad.zug:r
bad 'optimizer muon(lr = 1, each = batch) for w'
refuses 'Z0304.*no parameter that this optimizer updates has an axis `batch`' zplan check net.zsg --recipe bad.zug:r
bad 'optimizer muon(lr = 1, steps = 0) for w'
refuses 'Z0805.*`steps` must be a whole number from 1 to 64' zplan check net.zsg --recipe bad.zug:r
bad 'optimizer muon(lr = 1) for w'
refuses 'Z0808.*`muon` does not run on GPUs in this version|cannot load zug-cuda' zplan check net.zsg --recipe bad.zug:r --device cuda

# Layouts of a real model: matrices cut by ZeRO, by tensor ranks along rows, columns and neither; pipes; an average.
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/llama3.zug" -o llama3.zsg -D layers=4 -D heads=4 -D kv_heads=2 -D width=32 -D inner=48 -D words=127
sed 's/ head,//; s/^  clip 1.0/&\n  optimizer muon(lr = 0.01, each = kv, warmup = 2) for wq, wk, wv, wo, gate, up, down decay 0.1   average 0.9/' \
  "$ZUG_SRC/tests/data/models/layouts.zug" >layouts.zug
for recipe in one zero1_2 zero2_2 zero3_4 hsdp_4 tensor2 seq2 pipe2 zero3_tensor4 pipe_zero2_4 all8; do
  ranks=$(echo "$recipe" | sed -n 's/.*[^0-9]\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train llama3.zsg --recipe layouts.zug:$recipe --data text.bin --steps 5 --log $recipe
  "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-6 --norm 1e-6 $recipe/metrics.jsonl one/metrics.jsonl >diff.txt ||
    { cat diff.txt; fail "$recipe trains differently"; }
  printf '%-16s %s\n' "$recipe" "$(tail -n 1 diff.txt)"
done

# Killed and resumed: the same digits; in another layout, the same losses.
ok timeout -k 5 100 $MPIRUN -np 4 zrun train llama3.zsg --recipe layouts.zug:zero3_tensor4 --data text.bin --steps 3 --ckpt ckpt --ckpt-every 3
ok timeout -k 5 100 $MPIRUN -np 4 zrun train llama3.zsg --recipe layouts.zug:zero3_tensor4 --data text.bin --steps 5 --ckpt ckpt --resume --log again
tail -n 2 zero3_tensor4/metrics.jsonl | grep -o '"loss":[^,]*' >whole.txt
tail -n 2 again/metrics.jsonl | grep -o '"loss":[^,]*' >resumed.txt
cmp whole.txt resumed.txt || fail 'a resumed run goes on otherwise'
exit 0
