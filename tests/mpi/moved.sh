# What ranks hand to each other is what the plan says, in bf16 and in f32: tests/mpi/moved.c counts it.
. "$ZUG_SRC/tests/lib.sh"
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
recipe tensor_f32 from tensor { precision compute f32 }
recipe seq_f32 from seq { precision compute f32 }
recipe zero3_f32 from zero3 { precision compute f32 }
END_OF_RECIPES
recipes=$(awk '$1 == "recipe" && $2 != "base" { print $2 }' moved.zug)

ok timeout -k 5 100 $MPIRUN -np 4 "$ZUG_BUILD/tests/mpi/moved" llama3.zsg moved.zug text.bin $recipes
cat out.txt
says '^tensor  *all-reduce [1-9][0-9]* of bf16'
says '^seq .* reduce-scatter [1-9][0-9]*,'
says "^ulysses .* all-to-all [1-9]"
[ "$(grep -c 'all-reduce' out.txt)" -eq "$(echo "$recipes" | wc -l)" ] || fail "not all recipes were played"
