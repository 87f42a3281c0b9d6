# Every optimizer against the code of its paper or of PyTorch: matrices with one optimizer each, all in one recipe, 20 steps, on one
# rank and on four (data x tensor, ZeRO-3). tests/data/racers/racers.py worked the same out in f64, and in f32, by which its own
# rounding is known. Tolerance: twice that, of the layouts too; but 2e-7, one rounding of a parameter near 1 a step, where that
# is less.
# Then the same with states of 8 bits, which lose a part in 100 of a step; and a run that is ended and resumed: the same bits.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
expect=$ZUG_SRC/tests/data/racers/racers.expect

n=$(wc -l <"$expect")
{
  echo 'model Racers {'
  echo '  axis batch, a = 4, b = 6'
  echo '  input x: real[batch, a]'
  echo '  t = spread[b](3 * place[a]()) + 5 * place[b]() * place[b]()'
  sum=
  for k in $(seq 0 $((n - 1))); do
    echo "  param w$k[a, b] = 0"
    echo "  e$k = dot[a](x, $([ $k = 13 ] && echo '2 * ')w$k) - dot[a](x, sin(t + $k))"
    sum="$sum${sum:+ + }e$k * e$k"
  done
  echo "  loss sum[b]($sum) per samples()"
  echo '}'
} >racers.zug
cat >recipes.zug <<'END2'
recipe one {
  bind batch = 8
  optimizer adamw(lr = 0.01) decay 0.1
  optimizer adamw(lr = 0.02 / sqrt(a), b1 = 0.8, eps = 1e-10, every = 3) for w1
  optimizer sgd(lr = 0.01, momentum = 0.5 to 0.9 over 10) for w2
  optimizer sgd(lr = 0.01, momentum = 0.9, nesterov = on) for w3
  optimizer sgd(lr = 0.05, momentum = 0.9, nesterov = on, rule = mean) for w4 decay 1.2 to 0 over 15
  optimizer lion(lr = 0.003) for w5 decay 0.1
  optimizer adagrad(lr = 0.1) for w6
  optimizer muon(lr = 0.02) for w7 decay 1.2
  optimizer muon(lr = 0.02, momentum = 0.85 to 0.95 over 8, coefficients = polar, rule = mean, cautious = on) for w8 decay 1.2
  optimizer schedule_free(lr = 0.03, warmup = 5) for w9 decay 0.1
  optimizer muon(lr = 0.02, rule = mean, second = rows) for w10 decay 1.2
  optimizer muon(lr = 0.005, momentum = 0.85 to 0.97 over 8, coefficients = polar, rule = mean, cautious = on, equilibrate = on, exact = on,
    second = longer, b2 = 0.9) for w11 decay 0.28
  optimizer adafactor(lr = 0.05) for w12 decay 0.1
  optimizer adafactor(lr = 0.05, threshold = 0.8) for w13
  optimizer adafactor(lr = 0.3, relative = on, least = 0.02, decay_rate = 0.6) for w14
}
recipe four from one { mesh data = 2, tensor = 2   split batch over data   split b over tensor   shard params, grads, states over data }
recipe half from one { precision compute bf16 }
recipe codes from one { optimizer all(bits = 8) }
END2
# The samples, as racers.py has them.
perl -e 'for $k (0 .. 4 * 160 - 1) { my ($s, $i) = (int($k / 4), $k % 4); print pack("f<", (($k ** 2 * 7919 + 13 * $i) % 1009) / 504.5 - 1) }' >x.raw
ok zdata records x.raw --field x:f32:4 -o x.bin
ok zc racers.zug -o racers.zsg

# agree FILE FACTOR: the weights of FILE differ from those expected by at most so many times what f32 does there.
agree() {
  python3 - "$1" "$2" "$expect" <<'END3' || fail "$1 differs from the code of the papers"
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
head, bad = json.loads(data[8:8 + size]), False
for number, line in enumerate(open(sys.argv[3])):
    name, off, *want = line.split()
    at = head["w%d" % number]["data_offsets"]
    have = struct.unpack("<24f", data[8 + size + at[0]:8 + size + at[1]])
    worst = max(abs(x - float(y)) for x, y in zip(have, want))
    most = float(sys.argv[2]) * max(float(off), 1e-7)
    print(name, worst, most)
    bad |= not worst <= most
sys.exit(bad)
END3
}
ok zrun train racers.zsg --recipe recipes.zug:one --data x.bin --order sequential --steps 20 --save one.safetensors --log one
agree one.safetensors 2
ok $(on 4) zrun train racers.zsg --recipe recipes.zug:four --data x.bin --order sequential --steps 20 --save four.safetensors
agree four.safetensors 2
for steps in 7 20; do
  ok $(on 4) zrun train racers.zsg --recipe recipes.zug:four --data x.bin --order sequential --steps $steps --ckpt kept --resume --save again.safetensors
done
cmp four.safetensors again.safetensors || fail "a run that was resumed has other weights"
# In another layout, too: states of rows and columns are then other ranks'.
ok $(on 4) zrun train racers.zsg --recipe recipes.zug:four --data x.bin --order sequential --steps 7 --ckpt moved
ok zckpt verify moved/step-00000007
ok zrun train racers.zsg --recipe recipes.zug:one --data x.bin --order sequential --steps 20 --ckpt moved --resume --save moved.safetensors
agree moved.safetensors 2
# What is evaluated is what is saved, and evaluating changes no step.
ok zrun train racers.zsg --recipe recipes.zug:one --data x.bin --order sequential --steps 20 --save again.safetensors --eval x.bin --eval-every 5 --log eval
cmp one.safetensors again.safetensors || fail "evaluating changes what is trained"
ok zrun eval racers.zsg --recipe recipes.zug:one --data x.bin --init one.safetensors --log saved
for log in eval saved; do sed -n 's/.*"eval_loss":\([^,}]*\).*/\1/p' $log/metrics.jsonl | tail -1 >$log.txt; done
[ -s eval.txt ] && cmp eval.txt saved.txt || fail "what is saved has another loss than what was evaluated"
# Where parameters are read in bf16, too.
for more in '' '--eval x.bin --eval-every 3' '--ckpt half --ckpt-every 7'; do
  ok zrun train racers.zsg --recipe recipes.zug:half --data x.bin --order sequential --steps 20 --save half.safetensors $more
  [ -f first.safetensors ] || mv half.safetensors first.safetensors
  [ -z "$more" ] || cmp first.safetensors half.safetensors || fail "$more changes what is trained"
done
rm -r half/step-00000020 half/step-00000014
ok zrun train racers.zsg --recipe recipes.zug:half --data x.bin --order sequential --steps 20 --save half.safetensors --ckpt half --resume
cmp first.safetensors half.safetensors || fail "a run in bf16 that was resumed has other weights"
ok zrun train racers.zsg --recipe recipes.zug:codes --data x.bin --order sequential --steps 20 --save codes.safetensors
agree codes.safetensors 3e5

# What goes against an optimizer that keeps an average itself.
cat >>recipes.zug <<'END4'
recipe averaged from one { average 0.9 }
recipe cautious from one { optimizer all(cautious = on) }
END4
refuses 'saves an average of its own' zrun train racers.zsg --recipe recipes.zug:averaged --data x.bin --steps 1
refuses 'makes two steps' zrun train racers.zsg --recipe recipes.zug:cautious --data x.bin --steps 1
