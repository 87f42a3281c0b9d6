# What ranks hand to each other is what the plan says, in bf16 and in f32: tests/scenarios/tools/moved.c counts it.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" # MPI's own are many

ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/llama3.zug" -o llama3.zsg -D layers=2 -D heads=4 -D kv_heads=2 -D width=32 -D inner=48 -D words=128
cat >moved.zug <<'END_OF_RECIPES'
recipe base { bind batch = 8, seq = 32   micro 1   optimizer sgd(lr = 0.1)   precision compute bf16 }
recipe tensor from base { mesh tensor = 4   split kv*grp, ffn, vocab over tensor }
recipe seq from tensor { split kv*grp, ffn, vocab over tensor else seq }
recipe seq_micro2 from seq { micro 2 }                      # blocks of the sequence do not lie one behind the other
recipe zero1 from base { mesh data = 2, tensor = 2   split batch over data   split kv, ffn, vocab over tensor   shard states over data }
recipe zero2 from zero1 { shard grads, states over data }
recipe zero3 from zero1 { shard params, grads, states over data   split kv, ffn, vocab over tensor else seq }
recipe owners from zero1 { shard grads, states over data   shard grads, states over tensor }   # some owners have no part of the sums
recipe hsdp from base { mesh replica = 2, data = 2   split batch over replica, data   shard params, grads, states over data }
recipe pipe from base { mesh pipe = 2, tensor = 2   split kv, ffn, vocab over tensor else seq   stages over pipe by cost }
recipe ulysses from base { mesh data = 2, d = 2   split batch over data   split seq, kv over d   attention heads }   # all-to-alls around attention
recipe ring from base { mesh data = 2, d = 2   split batch over data   split seq over d   attention ring }
recipe muon from base { mesh data = 2, tensor = 2   split batch over data   split kv, ffn, vocab over tensor   shard grads, states over data   optimizer muon(lr = 0.1) for wq, wk, wv, wo, gate, up, down }
recipe tensor_f32 from tensor { precision compute f32 }
recipe seq_f32 from seq { precision compute f32 }
recipe zero3_f32 from zero3 { precision compute f32 }
END_OF_RECIPES
recipes=$(awk '$1 == "recipe" && $2 != "base" { print $2 }' moved.zug)

ok timeout -k 5 100 $MPIRUN -np 4 "$ZUG_BUILD/tests/scenarios/tools/moved" llama3.zsg moved.zug text.bin $recipes
cat out.txt
says '^tensor  *all-reduce [1-9][0-9]* of bf16'
says '^seq .* reduce-scatter [1-9][0-9]*,'
says "^ulysses .* all-to-all [1-9]"
[ "$(grep -c 'all-reduce' out.txt)" -eq "$(echo "$recipes" | wc -l)" ] || fail "not all recipes were played"

# Rows of experts and borders of a sequence; what is summed in each round, as often as tokens want: that is the most if all
# choose the same expert.
cat >both.zug <<'END_OF_MODEL'
use std.nn as nn
model Both(experts = 4, active = 2, hot = 0) {
  axis batch, seq, vocab = 128, embed = 16
  axis expert = experts, choice = active, ffn = 16, slot
  input tokens: index(vocab)[batch, seq]
  input targets: index(vocab)[batch, seq]
  param wte[vocab, embed] ~ normal(0.3)
  param router[embed, expert], up[expert, embed, ffn], down[expert, ffn, embed] ~ normal(0.5)
  x = lookup(wte, tokens)
  x = x + shift[seq](x)
  w, e = topk[expert, choice](softmax[expert](f32(dot[embed](x, router))) + hot * place[expert]())
  x = x + combine[expert, slot, choice](dot[ffn](nn.silu(dot[embed](dispatch[expert, slot](x, e), up)), down), e, w)
  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)
}
recipe base { bind batch = 8, seq = 32, slot = 0.5   micro 2   optimizer sgd(lr = 0.1) }
recipe halo from base { mesh d = 4   split seq over d }
recipe rows from base { mesh ep = 2, d = 2   split batch, expert over ep   split seq over d }
recipe sums from base { mesh ep = 2, tensor = 2   split batch, expert over ep   split embed over tensor }
END_OF_MODEL
for options in '' '-D active=1 -D hot=100'; do
  ok zc both.zug -o both.zsg $options
  ok timeout -k 5 100 $MPIRUN -np 4 "$ZUG_BUILD/tests/scenarios/tools/moved" both.zsg both.zug text.bin halo rows sums
  cat out.txt
  says '^halo .* send [1-9]'
  says '^rows .* send [1-9]'
  [ -z "$options" ] || says '^sums  *all-reduces in rounds: ([0-9]+) of [0-9]+ to \1$'
done
