# Evaluation: the loss of held-out data, alone and while training. It is that of a training step over the same samples, in
# every layout; it changes nothing; what is wrong with the data is said before anything is trained.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
compare=$ZUG_BUILD/tests/scenarios/tools/compare_runs

sed 's/ kv,//' "$ZUG_SRC/tests/data/models/layouts.zug" | sed '/^recipe gqa/,$d' >recipes.zug
cat >>recipes.zug <<'END'
recipe adam8 from all_zero3_8 { optimizer adamw(lr = 1e-2, warmup = 3) decay 0.1   clip 1.0 }
recipe half8 from adam8 { precision compute bf16 }
recipe half1 from one { precision compute bf16 }
recipe whole1 from one { bind batch = 80   optimizer sgd(lr = 0) }
recipe bare1 { bind batch = 8, seq = 32 }
END
head -c 8000 "$ZUG_SRC/LICENSE" >text
tail -c 2700 "$ZUG_SRC/LICENSE" >held # 84 windows of 32
ok zdata pack text -o text.bin
ok zdata pack held -o held.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=4 -D heads=4 -D width=32 -D context=32 -D words=127

train() { # LOG RECIPE OPTION...; the number of ranks ends the recipe's name
  log=$1 recipe=$2
  shift 2
  ranks=$(echo "$recipe" | sed -n 's/.*[^0-9]\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train ${graph:-gpt2.zsg} --recipe recipes.zug:"$recipe" --data ${data:-text.bin} \
    --log "$log" "$@"
}
evaluate() { # LOG RECIPE OPTION...
  log=$1 recipe=$2
  shift 2
  ranks=$(echo "$recipe" | sed -n 's/.*[^0-9]\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun eval ${graph:-gpt2.zsg} --recipe recipes.zug:"$recipe" --data ${data:-held.bin} \
    --log "$log" "$@"
}
value() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" "$2/metrics.jsonl"; } # KEY LOG: one a line
# near A B TOLERANCE, relative: f32 sums in another order, as tests/scenarios/layouts.sh has them; bf16 rounds otherwise
near() {
  awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = (a - b) / b; exit !(a ~ /^-?[0-9]/ && b ~ /^-?[0-9]/ && d <= t && -d <= t) }' || fail "$4: $1, wanted $2"
}

# ---- the loss of 80 samples, once as one step of training with a rate of 0, and in batches of 16 that only go forward ----
train start one --steps 6 --save w.safetensors
data=held.bin train plain whole1 --steps 1 --order sequential --init w.safetensors
plain=$(value loss plain)
for recipe in one one_big all_zero3_8 $(at_night && echo zero1_2 zero2_2 zero3_2 keep_4 hsdp_4 tensor2 seq2 seq_alone2 gpipe2 uneven3 \
  few4 pipe_zero2_4 all_zero1_8); do
  evaluate alone $recipe --init w.safetensors
  near "$(value eval_loss alone)" "$plain" 1e-5 "$recipe"
  near "$(value eval_perplexity alone)" "$(awk -v l="$plain" 'BEGIN { print exp(l) }')" 1e-4 "$recipe, perplexity"
  [ "$(value eval_tokens alone)" = 2560 ] || fail "$recipe: $(value eval_tokens alone) targets"
  rm -r alone
done
says '^evaluation of held.bin: 5 batches of 16 samples; the last 4 samples make no whole batch and are left out$'
says '^eval  loss [0-9.]*  perplexity [0-9.]*  2560 targets  [0-9.]* ms$'
# of the same weights in bf16: as far from it as bf16 is (8 bits)
for recipe in half8 half1; do
  evaluate half $recipe --init w.safetensors
  near "$(value eval_loss half)" "$plain" 2e-3 $recipe
  rm -r half
done
# a recipe that does not say how to train; and the same bits each time, but for the time it took
evaluate bare bare1 --init w.safetensors --eval-batches 10
evaluate again bare1 --init w.safetensors --eval-batches 10 --threads 2
near "$(value eval_loss bare)" "$plain" 1e-5 bare1
near "$(value eval_loss again)" "$plain" 1e-5 'bare1 with threads'
says '^evaluation of held.bin: 10 batches of 8 samples; the last 4 samples'
evaluate first bare1 --init w.safetensors --eval-batches 3
evaluate second bare1 --init w.safetensors --eval-batches 3
[ "$(value eval_loss first)" = "$(value eval_loss second)" ] || fail "the same evaluation gives other numbers"
says '^evaluation of held.bin: 3 batches of 8 samples; the other 60 samples are left out$'

# ---- while training: it says the same as alone afterwards, and no bit of what is trained changes ----
for recipe in zero3_2 pipe2 $(at_night && echo one zero1_2 uneven3 adam8 half8); do
  train without $recipe --steps 5 --save without.safetensors
  train with $recipe --steps 5 --save with.safetensors --eval held.bin --eval-every 2
  says '^evaluation of held.bin: 5 batches'
  says 'stage 0: evaluation takes [0-9.]* [kM]B of the arena beside parameters$'
  cmp with.safetensors without.safetensors || fail "$recipe: evaluating changes what is trained"
  grep -v eval_loss with/metrics.jsonl >steps.jsonl
  ok "$compare" --loss 0 --norm 0 steps.jsonl without/metrics.jsonl
  [ "$(value eval_best_step with | tr '\n' ' ')" = '2 4 5 ' ] || { cat with/metrics.jsonl; fail "$recipe: not after steps 2, 4 and 5, each the best"; }
  evaluate alone $recipe --init with.safetensors
  near "$(value eval_loss with | tail -n 1)" "$(value eval_loss alone)" 1e-9 "$recipe while training"
  for key in planned used; do # the arena is no larger for it
    [ "$(value ${key}_bytes with | sort -u)" = "$(value ${key}_bytes without | sort -u)" ] || fail "$recipe: other $key bytes"
  done
  rm -r with without alone
done
train last one --steps 3 --eval held.bin --eval-batches 1 # after the last step alone
[ "$(value eval_loss last | wc -l)" -eq 1 ] || fail "not one evaluation"
says '^eval 3/3  loss [0-9.]*  perplexity [0-9.]*  512 targets  .* best [0-9.]* after step 3$'
sed 's/lr = [0-9.e-]*/lr = 5/' recipes.zug >wild.zug # the best is not the last
ok zrun train gpt2.zsg --recipe wild.zug:one --init w.safetensors --data text.bin --steps 4 --eval held.bin --eval-every 1 --log wild
[ "$(value eval_loss wild | sort -g | head -n 1)" = "$(value eval_best_loss wild | tail -n 1)" ] || { cat wild/metrics.jsonl; fail "another is the best"; }
[ "$(value eval_best_step wild | tail -n 1)" -lt 4 ] || { cat wild/metrics.jsonl; fail "this test's own tool is broken: the last is the best"; }
# ... and a run that goes on knows the best of before, unless it evaluates other data
wild="zrun train gpt2.zsg --recipe wild.zug:one --init w.safetensors --data text.bin --eval-every 1 --ckpt ckpt"
ok $wild --steps 3 --eval held.bin --log before
ok zckpt show ckpt/step-00000003
says "^best evaluation so far, of held.bin: loss [0-9.]* after step $(value eval_best_step before | tail -n 1)$"
cp text.bin other.bin
for with in held other; do
  rm -rf ckpt after && cp -r before after
  ok $wild --steps 3 --eval held.bin
  ok $wild --steps 4 --eval $with.bin --resume --log after
  best=$(value eval_best_step after | tail -n 1)
  [ $with = other ] && want=4 || want=$(value eval_best_step wild | tail -n 1)
  [ "$best" = "$want" ] || { cat after/metrics.jsonl; fail "$with: after going on the best is that of step $best, not $want"; }
done

# ---- what is dropped while training is not dropped here ----
sed 's/return x + Mlp(\(.*\)) as mlp/return x + nn.dropout(Mlp(\1) as mlp, p = 0.5)/' "$ZUG_SRC/examples/gpt2.zug" >drops.zug
grep -q 'nn.dropout(Mlp' drops.zug || fail "no dropout in the model"
ok zc drops.zug -o drops.zsg -D layers=4 -D heads=4 -D width=32 -D context=32 -D words=127
graph=drops.zsg evaluate drops pipe2 --init w.safetensors
near "$(value eval_loss drops)" "$plain" 1e-5 'with dropout'
data=held.bin graph=drops.zsg train dropped whole1 --steps 1 --order sequential --init w.safetensors
awk -v a="$(value loss dropped)" -v b="$plain" 'BEGIN { d = (a - b) / b; exit !(d > 1e-3 || d < -1e-3) }' || fail "nothing is dropped while training"

# ---- targets that are not known: what is divided is the sum over all batches, not the mean of theirs ----
od -An -v -tu1 held | tr -s ' ' '\n' | awk 'NF { known = n++ > 900 || n % 4 == 1; printf known ? "\\%03o\\000" : "\\377\\377", $1 }' >octal
printf "$(cat octal)" >ids.u16 # two of three of the first 900 tokens are unknown
ok zdata pack ids.u16 --tokens u16 --vocab 127 -o ids.bin
data=ids.bin train plain_ids whole1 --steps 1 --order sequential --init w.safetensors
for recipe in one $(at_night && echo zero3_4 all8); do
  data=ids.bin evaluate ids $recipe --init w.safetensors
  near "$(value eval_loss ids)" "$(value loss plain_ids)" 1e-5 "$recipe, unknown targets"
  [ "$(value eval_tokens ids)" -lt 2560 ] || fail "all targets are known"
  rm -r ids
done

# ---- wrong data and wrong options: said before anything is trained ----
before() { # PATTERN OPTION...
  pattern=$1
  shift
  mistake "$pattern" $MPIRUN -np 2 zrun train gpt2.zsg --recipe recipes.zug:zero3_2 --data text.bin --steps 3 "$@"
  grep -q '^step 1' out.txt && fail "trained before: $*"
  return 0
}
head -c 500 held >few
ok zdata pack few -o few.bin
{ head -c 2600 held; printf '\377'; head -c 99 held; } >strange
ok zdata pack strange --tokens u16 -o words.bin # pairs of bytes: ids up to 65535
printf 'a,b,c\n1,2,x\n' >table.csv
ok zdata table table.csv --label c -o table.bin
{ head -c 200 held.bin; printf '~'; tail -c +202 held.bin; } >damaged.bin
before 'cannot open none.bin' --eval none.bin
before 'text is not a token file' --eval text
before "table.bin has no field 'tokens'; it has: features, c" --eval table.bin
before 'few.bin has 15 samples; an evaluation takes whole batches of 16; use more data, or .bind. a smaller batch' --eval few.bin
before "words.bin: its largest id in 'tokens' is [0-9]*; the model knows 0 to 126; was the file packed with another vocabulary" --eval words.bin
before 'damaged.bin is damaged: the checksum of its tokens differs' --eval damaged.bin
before '.--eval-batches 6: held.bin has 5 whole batches of 16 samples; leave --eval-batches out to take them all' --eval held.bin --eval-batches 6
before 'zrun train needs --eval FILE' --eval-every 2
before '--eval-every cannot be .0.' --eval held.bin --eval-every 0
eval="zrun eval gpt2.zsg --recipe recipes.zug:one"
refuses 'zrun eval needs --init FILE, the weights to evaluate' $eval --data held.bin
refuses 'zrun eval needs --data FILE' $eval --init w.safetensors
for option in '--steps 3' '--seed 1' '--order sequential' '--save x' --times '--eval held.bin' '--eval-every 2'; do
  refuses "zrun eval takes no option ${option%% *}" $eval --data held.bin --init w.safetensors $option
done
mistake 'none.safetensors' $eval --data held.bin --init none.safetensors
refuses 'zrun has no command .evaluate.; ' zrun evaluate gpt2.zsg --recipe recipes.zug:one
yes '\377\377' | head -n 600 | tr -d '\n' >octal
printf "$(cat octal)" >none.u16
ok zdata pack none.u16 --tokens u16 --vocab 127 -o nothing.bin
mistake 'nothing in nothing.bin is known: what is after .per. adds up to 0$' $eval --data nothing.bin --init w.safetensors
# ... and while training that is no reason to end
train on one --steps 2 --eval nothing.bin
[ "$(value eval_loss on)" = null ] || fail "a loss of nothing"

# ---- outputs of the model: from them and the targets comes the loss; every layout writes the same file ----
evaluate alone one --init w.safetensors --predict one.safetensors
bytes=$(od -An -tu8 -N8 one.safetensors | tr -d ' ')
head -c $((8 + bytes)) one.safetensors | tail -c "$bytes" >head.txt
grep -q '"logits":{"dtype":"F32","shape":\[80,32,127\]' head.txt || { cat head.txt; fail "not the logits of all samples"; }
{ od -An -v -tu1 held | tr -s ' ' '\n' | sed '/^$/d' | sed 1d | head -n 2560
  od -An -v -w508 -tf4 -j $((8 + bytes)) one.safetensors; } |
  awk 'NF == 1 { target[n++] = $1; next } { for (i = s = 0; i < 127; i++) s += exp($(i + 1)); sum += log(s) - $(target[k++] + 1) }
    END { printf "%.9g\n", sum / k }' >mean
near "$(cat mean)" "$plain" 1e-5 'the loss of the logits that were written'
for recipe in few4 $(at_night && echo zero3_2 seq2 hsdp_4 gather4 all_zero3_8); do
  evaluate alone $recipe --init w.safetensors --predict other.safetensors
  ok "$compare" --abs 1e-5 --rel 1e-4 other.safetensors one.safetensors
done
evaluate alone half8 --init w.safetensors --predict other.safetensors
ok "$compare" --abs 0.05 --rel 0.05 other.safetensors one.safetensors # bf16
# several outputs, of other kinds, along an axis with padding
cat >pick.zug <<'END'
model Pick() {
  axis batch, pixel = 4, class = 3
  input image: real[batch, pixel]
  input kind: index(class)[batch]
  param w[pixel, class] ~ normal(0.5)
  output score = dot[pixel](image, w)
  output size = sum[pixel](image)
  output label = kind
  loss xent[class](score, kind) per known(kind)
}
END
sed 's/output score = \(.*\)/score = \1/; /output/d' pick.zug >bare.zug
sed 's/output label = kind/output weights = w * 2/' pick.zug >fixed.zug
cat >>recipes.zug <<'END'
recipe pick1 { bind batch = 8   optimizer sgd(lr = 0.1) }
recipe pick4 from pick1 { mesh data = 2, tensor = 2   split batch over data   split class over tensor   pad class to 4   micro 2 }
END
awk 'BEGIN { srand(3); print "a,b,c,d,kind"; for (i = 0; i < 24; i++) print rand() "," rand() "," rand() "," rand() ",k" i % 3 }' >points.csv
ok zdata table points.csv --label kind --label-field kind --field image -o points.bin
for model in pick bare fixed; do ok zc $model.zug -o $model.zsg; done
graph=pick.zsg data=points.bin train picks pick1 --steps 1 --save pick.safetensors
graph=pick.zsg data=points.bin evaluate picks pick1 --init pick.safetensors --predict a.safetensors
graph=pick.zsg data=points.bin evaluate picks pick4 --init pick.safetensors --predict b.safetensors
ok "$compare" --abs 1e-6 --rel 1e-6 a.safetensors b.safetensors
says '^3 tensors'
bytes=$(od -An -tu8 -N8 a.safetensors | tr -d ' ')
od -An -v -w4 -tf4 -j $((8 + bytes + 384)) -N96 a.safetensors | tr -d " \n" >labels # behind 3 x 24 scores and 24 sizes
[ "$(cat labels)" = 012012012012012012012012 ] || { cat labels; fail "other labels than those of the data"; }
pick="zrun eval pick.zsg --recipe recipes.zug:pick1 --data points.bin --init pick.safetensors"
cp text precious
mistake 'precious exists and is not a safetensors file: it is not replaced' $pick --predict precious
cmp text precious || fail "precious is lost"
mistake '--predict ./pick.safetensors would overwrite pick.safetensors, from which it is made' $pick --predict ./pick.safetensors
mistake 'cannot .* none/a.safetensors' $pick --predict none/a.safetensors
mistake 'error: model Pick has no outputs' $(echo "$pick" | sed s/pick.zsg/bare.zsg/) --predict c.safetensors
mistake 'error: output .weights. cannot be written: samples are not its slowest axis' \
  $(echo "$pick" | sed s/pick.zsg/fixed.zsg/) --predict c.safetensors
before 'zrun train takes no option --predict; it belongs to eval' --predict c.safetensors
ls ./*.tmp c.safetensors 2>/dev/null && fail "something is left"

# ---- plans of evaluations, without data ----
ok $MPIRUN -np 8 zrun eval gpt2.zsg --recipe recipes.zug:all_zero3_8 --dry-run
says 'TFLOP a batch .forward only.$'
ok $MPIRUN -np 2 zrun train gpt2.zsg --recipe recipes.zug:zero3_2 --dry-run --eval held.bin
says '^evaluation, in the same arena:$'
says ' other  *training  *arena$'
exit 0
