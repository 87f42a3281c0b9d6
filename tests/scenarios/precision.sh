# bf16 compute with f32 master weights, the optimizers and the learning rates.
#
# bf16 keeps 8 bits of a number: a rounding errs by up to 2^-9 = 2e-3 of it, in every product's operands and result. Sums are in
# f32 and such errors are independent, so a loss, a mean over many positions, comes out closer than one rounding, and the norm of
# all gradients about as close. Layouts in bf16 differ where partial sums are rounded (tensor parallelism), not the whole: 2e-3 is
# allowed; bf16 and f32 everywhere and from step to step: 1e-2. Adam's first step, though, is the sign of a gradient: where that is
# nothing but rounding errors (a bias on the keys), it makes large steps of them, and the next norm differs by more: 2e-2.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
compare=$ZUG_BUILD/tests/scenarios/tools/compare_runs

cat >precision.zug <<'END'
recipe full {
  bind batch = 16, seq = 32
  micro 4
  optimizer sgd(lr = 0.1, momentum = 0.9) decay 0.01 except norm, bias
  clip 1.0
  pad vocab to 4
}
recipe full_4 from full { mesh pipe = 2, data = 2   split batch over data   stages over pipe by cost   shard params, grads, states over data }
recipe plain from full { optimizer sgd(lr = 0.1)   clip 0 }
recipe plain_4 from plain { mesh data = 2, tensor = 2   split batch over data   split head, ffn, vocab over tensor   micro 2 }
recipe adam from full { optimizer adamw(lr = 3e-3, b1 = 0.9, b2 = 0.95, eps = 1e-6, warmup = 2) decay 0.1 except norm, bias }

recipe half_1 from full { precision compute bf16 }
recipe half_recompute_1 from half_1 { recompute Layer }
recipe half_data_2 from half_1 { mesh data = 2   split batch over data }
recipe half_zero1_2 from half_data_2 { shard states over data }
recipe half_zero2_2 from half_data_2 { shard grads, states over data }
recipe half_zero3_2 from half_data_2 { shard params, grads, states over data unit layer }
recipe half_keep_2 from half_data_2 { shard params, grads, states over data unit layer keep }
recipe half_pipe_2 from half_1 { mesh pipe = 2   stages over pipe by cost }
recipe half_tensor_2 from half_1 { mesh tensor = 2   split head, ffn, vocab over tensor }
recipe half_seq_2 from half_1 { mesh tensor = 2   split head, ffn, vocab over tensor else seq }
recipe half_gather_2 from half_1 { mesh context = 2   split seq over context   attention gather }
recipe half_heads_2 from half_gather_2 { attention heads }
recipe half_ring_4 from half_gather_2 { mesh context = 4   attention ring }
recipe half_all_8 from half_1 {
  mesh pipe = 2, data = 2, tensor = 2
  split batch over data
  split head, ffn, vocab over tensor else seq
  stages over pipe by cost
  micro 2
  shard params, grads, states over data unit layer
}
recipe half_plain_2 from plain { precision compute bf16   mesh data = 2   split batch over data   shard grads, states over data }
recipe half_adam_1 from adam { precision compute bf16 }
recipe half_adam_8 from half_all_8 { optimizer adamw(lr = 3e-3, b1 = 0.9, b2 = 0.95, eps = 1e-6, warmup = 2) decay 0.1 except norm, bias }

recipe sums_ddp_2 from full { mesh data = 2   split batch over data   precision reduce bf16 }
recipe sums_zero1_2 from sums_ddp_2 { shard states over data }
recipe sums_zero2_2 from sums_ddp_2 { shard grads, states over data }
recipe sums_zero3_2 from sums_ddp_2 { shard params, grads, states over data unit layer }
recipe sums_hsdp_4 from sums_ddp_2 { mesh replica = 2, data = 2   split batch over replica, data   micro 2   shard params, grads, states over data }
recipe sums_all_8 from half_all_8 { precision compute f32, reduce bf16 }

recipe grads_1 from full { precision grads bf16 }
recipe grads_tensor_2 from grads_1 { mesh tensor = 2   split head, ffn, vocab over tensor }
recipe grads_data_2 from grads_1 { mesh data = 2   split batch over data }
recipe grads_zero1_2 from grads_data_2 { shard states over data }
recipe grads_zero2_2 from grads_data_2 { shard grads, states over data }
recipe grads_zero3_2 from grads_data_2 { shard params, grads, states over data unit layer }
recipe grads_hsdp_4 from grads_1 { mesh replica = 2, data = 2   split batch over replica, data   micro 2   shard params, grads, states over data }
recipe grads_all_8 from half_all_8 { precision compute f32, grads bf16 }
recipe untied_1 for Llama3 { bind batch = 16, seq = 32   micro 4   precision grads bf16   optimizer sgd(lr = 0.1, momentum = 0.9)   clip 1.0 }
recipe untied_pipe_2 for Llama3 from untied_1 { mesh pipe = 2   stages over pipe by cost }
recipe grads_least_1 from adam { precision compute bf16, grads bf16   optimizer adamw(lr = 3e-3, b1 = 0.9, b2 = 0.95, eps = 1e-6, warmup = 2, bits = 8) }

recipe constant from full { optimizer adamw(lr = 2e-3, warmup = 3) }
recipe linear from full { optimizer adamw(lr = 2e-3, anneal = linear, until = 8) }
recipe cosine from full { optimizer sgd(lr = 2e-3, warmup = 2, anneal = cosine, until = 8, final = 0.25) }
END
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=4 -D heads=4 -D width=32 -D context=32 -D words=127

run() { # RECIPE STEPS; the number of ranks ends its name
  ranks=$(echo "$1" | sed -n 's/.*_\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train gpt2.zsg --recipe precision.zug:"$1" --data text.bin --steps "$2" --log "$1"
}

alike() { # A B TOLERANCE
  "$compare" --loss "$3" --norm "$3" "$1/metrics.jsonl" "$2/metrics.jsonl" >diff.txt || { cat diff.txt; fail "$1 and $2 train differently"; }
  printf '%-16s %-10s %s\n' "$1" "$2" "$(tail -n 1 diff.txt)"
}

differ() { # A B: losses
  sed -n 's/.*"loss":\([0-9.e+-]*\),.*/\1/p' "$1/metrics.jsonl" >a.txt
  sed -n 's/.*"loss":\([0-9.e+-]*\),.*/\1/p' "$2/metrics.jsonl" >b.txt
  cmp -s a.txt b.txt && fail "$1 and $2 are the same"
}

# ---- f32: SGD with momentum and without ----
for recipe in full full_4 plain plain_4 adam; do run $recipe 5; done
alike full_4 full 1e-5
alike plain_4 plain 1e-5
differ full plain

# ---- bf16 ----
run half_1 5
alike half_1 full 1e-2
differ half_1 full
for what in recompute_1 all_8 $(at_night && echo data_2 zero1_2 zero2_2 zero3_2 keep_2 pipe_2 tensor_2 seq_2 gather_2 heads_2 ring_4); do
  run half_$what 5
  alike half_$what half_1 2e-3
done
run half_plain_2 5
alike half_plain_2 plain 1e-2
run half_adam_1 5
alike half_adam_1 adam 2e-2
if at_night; then
  run half_adam_8 5
  alike half_adam_8 half_adam_1 2e-2
fi

# ---- gradients summed over ranks in bf16, which are kept in f32 ----
# Each rank's part is rounded, and the sum: up to 2^-8 of an element, and less of the norm of all, since errors are independent. Five
# steps add to it: as much is allowed as layouts of bf16 may differ (seen: 9e-4).
for what in zero2_2 $(at_night && echo ddp_2 zero1_2 zero3_2 hsdp_4 all_8); do
  run sums_$what 5
  alike sums_$what full 2e-3
  differ sums_$what full
done
zplan explain gpt2.zsg --recipe precision.zug:full_4 >whole.txt
sed 's/precision compute bf16/&, reduce bf16/; s/recipe full {/& precision reduce bf16/' precision.zug >narrow.zug
zplan explain gpt2.zsg --recipe narrow.zug:full_4 >narrow.txt
awk 'FNR == NR { if (/gradients to their owners/) whole[++n] = $3 * ($4 == "kB" ? 1000 : 1); next }
  /gradients to their owners/ && $3 * ($4 == "kB" ? 1000 : 1) * 2 > 1.1 * whole[++m] { print; bad = 1 }
  END { exit bad || m != n || !n }' whole.txt narrow.txt || fail "reduce bf16 does not send half"

# ---- gradients added up in bf16, rounded at random ----
# Draws are of an element's place, so where each rank adds up what one rank does, the sums are its: to the last bit where the gradients
# are (a pipeline without a tied table, of which each stage would add up its part; ZeRO-2 and ZeRO-3). Under tensor parallelism
# gradients differ in their last bits, and few of them fall to the other side of a draw, which moves a sum by 2^-8 (seen: 3e-7 of a
# loss, 5e-5 of the norm; draws that are others differ by 5e-6 and 5e-4). Ranks with samples of their own add up others: an element
# errs by up to 2^-8 in each of four additions, independently: as much is allowed as layouts in bf16 may differ.
run grads_1 5
alike grads_1 full 2e-3
differ grads_1 full
run grads_tensor_2 5
"$compare" --loss 2e-6 --norm 2e-4 grads_tensor_2/metrics.jsonl grads_1/metrics.jsonl >diff.txt || { cat diff.txt; fail "draws depend on the layout"; }
run grads_zero3_2 5
alike grads_zero3_2 grads_1 2e-3
ok zc "$ZUG_SRC/examples/llama3.zug" -o untied.zsg -D layers=2 -D heads=4 -D kv_heads=2 -D width=32 -D inner=64 -D words=127
for what in 1 pipe_2; do
  ok timeout -k 5 100 $(on ${what#pipe_}) zrun train untied.zsg --recipe precision.zug:untied_$what --data text.bin --steps 5 --log untied_$what
done
alike untied_pipe_2 untied_1 0
if at_night; then
  run grads_zero2_2 5
  alike grads_zero2_2 grads_zero3_2 0
  for what in data_2 zero1_2 hsdp_4 all_8; do
    run grads_$what 5
    alike grads_$what grads_1 2e-3
  done
fi
run grads_least_1 5
alike grads_least_1 adam 2e-2

# ---- real inputs, each of another length, in bf16: as in f32 ----
cat >rows.zug <<'END'
model Rows {
  axis batch, a = 600
  input y: real[batch]
  input x: real[batch, a]
  param w[a] = 0.125
  loss dot[a](x, w) per y
}
END
cat >rows-recipes.zug <<'END'
recipe wide { bind batch = 4   optimizer sgd(lr = 1) }
recipe half from wide { precision compute bf16 }
END
# A record: y = 2, then 600 times 0.5. A loss is 600 * 0.5 * 0.125 / 2 = 18.75 and a gradient 0.5 / 2 = 0.25: then it is -18.75.
awk 'BEGIN { for (r = 0; r < 8; r++) { printf "\\0\\0\\0\\100"; for (i = 0; i < 600; i++) printf "\\0\\0\\0\\077" } }' >escapes.txt
printf "$(cat escapes.txt)" >rows.raw
ok zdata records rows.raw --field y:f32:1 --field x:f32:600 -o rows.bin
ok zc rows.zug -o rows.zsg
for recipe in wide half; do
  ok timeout -k 5 60 zrun train rows.zsg --recipe rows-recipes.zug:$recipe --data rows.bin --steps 2 --log rows-$recipe
  losses=$(sed -n 's/.*"loss":\([0-9.e+-]*\),.*/\1/p' rows-$recipe/metrics.jsonl | tr '\n' ' ')
  [ "$losses" = "18.75 -18.75 " ] || fail "rows of inputs, $recipe: losses $losses"
done

# ---- learning rates ----
rates() { # RECIPE FORMULA: in awk, of the step s
  run "$1" 10
  sed -n 's/.*"step":\([0-9]*\),.*"lr":\([0-9.e+-]*\),.*/\1 \2/p' "$1/metrics.jsonl" >rates.txt
  [ "$(wc -l <rates.txt)" -eq 10 ] || fail "$1: not 10 learning rates"
  awk -v OFMT=%.9g "{ s = \$1; want = $2; d = want - \$2; if (d < 0) d = -d; if (d > 1e-8 * 2e-3) { print s, \$2, want; bad = 1 } }
    END { exit bad }" rates.txt >diff.txt || { cat diff.txt; fail "$1: learning rates (step, found, expected)"; }
}
rates constant '2e-3 * (s < 3 ? s / 3 : 1)'
rates linear '2e-3 * (s < 8 ? 1 - s / 8 : 0)'
rates cosine '2e-3 * (s <= 2 ? s / 2 : s < 8 ? 0.25 + 0.75 * 0.5 * (1 + cos(3.14159265358979 * (s - 2) / 6)) : 0.25)'
exit 0
