/* Random recipes again, now with numbers: the local programs of all ranks are played in this process, and must
 * give the loss and the gradients of one rank. */
#include "tests/unit/breadth.h"
#include "tests/unit/plan/models/recipes.h"
#include "tests/unit/plan/random/play.h"

#include <criterion/criterion.h>
#include <string.h>

static void compare(const Play *one, const Play *y, const char *recipe) {
  Where what;
  cr_assert(play_differs(one, y, what) <= 1, "%s\n%s", what, recipe);
}

/* Recipes that plan, with few ranks and in f32; unless `supports` is NULL, with nodes fused
 * to the ops before them. `more`: what is added to each recipe. beside: for a device on which collectives go
 * beside calls, where nothing of one may matter to others, whenever within its time it happens. */
static void many_with(const char *more, int m, uint32_t push, bool (*supports)(const ZkCall *), bool beside) {
  const uint32_t n = breadth_many(push / 3); /* all are proved; these are played, too */
  Model x = model_open(random_models[m].name, random_models[m].text, random_models[m].options);
  uint32_t played = 0;
  uint64_t went_beside = 0;
  for (uint32_t i = 0; i < n; i++) {
    ZbText t = {0};
    put_recipe(m, i, &t);
    zb_text_add(&t, "%s", more);
    Plan q = plan_try(x.g, t.s);
    const ZpPlan *p = q.p;
    if (p && zp_precision_elem(p->asked.recipe->precision.compute) == ZK_F32 && p->layout.mesh.nranks > 1 &&
        p->layout.mesh.nranks <= 8 && p->asked.global_batch <= 64) {
      const char *seq = "";
      if (m != MLP)
        seq = zb_printf(q.a, ", seq = %lld", (long long)p->layout.axis_valid[zg_axis_find(x.g, "seq")]);
      Plan ref =
          plan_of(x.g, zb_printf(q.a, "bind batch = %lld%s micro %lld", (long long)p->asked.global_batch, seq,
                                 (long long)p->layout.axis_size[p->asked.batch]));
      Play one, y;
      if (supports || beside) {
        plan_close(&q);
        q = beside ? plan_try_streams(x.g, t.s, supports) : plan_fused(x.g, t.s, supports);
        p = q.p;
      }
      if (!p) { /* some layouts are for CPUs alone */
        plan_close(&ref);
        plan_close(&q);
        zb_text_free(&t);
        continue;
      }
      if (supports || beside) {
        const char *wrong = plan_wrong(p, q.a);
        cr_assert_str_eq(wrong, "", "%s\n%s", wrong, t.s);
      }
      play(&one, ref.p, false);
      for (int late = 0; late <= beside; late++) {
        play(&y, p, late);
        compare(&one, &y, t.s);
        went_beside += y.beside;
        play_end(&y);
      }
      play_end(&one);
      plan_close(&ref);
      played++;
    }
    plan_close(&q);
    zb_text_free(&t);
  }
  cr_log_info("%s: %u plans played", random_models[m].name, played);
  cr_assert_geq(played, n / 50);
  cr_assert(beside ? went_beside || n < 40 : !went_beside, "%llu", (unsigned long long)went_beside);
  model_close(&x);
}
static void many(int m, uint32_t n, bool (*supports)(const ZkCall *)) {
  many_with("", m, n, supports, false);
}

Test(play, mlp) { many(MLP, 150, NULL); }
Test(play, gpt2) { many(GPT2, 75, NULL); }
Test(play, llama3) { many(LLAMA3, 75, NULL); }
Test(play, odd) { many(ODD, 24, NULL); }
Test(play, mlp_fused) { many(MLP, 150, supports_all); }
Test(play, gpt2_fused) { many(GPT2, 75, supports_all); }
Test(play, llama3_fused) { many(LLAMA3, 75, supports_all); }
Test(play, odd_fused) { many(ODD, 24, supports_all); }
Test(play, gpt2_norms) { many(GPT2, 75, supports_norms); }
Test(play, llama3_norms) { many(LLAMA3, 75, supports_norms); }
Test(play, odd_norms) { many(ODD, 24, supports_norms); }
Test(play, mlp_beside) { many_with("", MLP, 75, NULL, true); }
Test(play, gpt2_beside) { many_with("", GPT2, 50, NULL, true); }
Test(play, llama3_beside) { many_with("", LLAMA3, 50, supports_all, true); }
Test(play, odd_beside) { many_with("", ODD, 24, supports_all, true); }
/* One of each alone; all together are in supports_all. */
Test(play, gpt2_norm_sums) { many(GPT2, 50, supports_norm_sums); }
Test(play, llama3_norm_sums) { many(LLAMA3, 50, supports_norm_sums); }

Test(play, mlp_bias_grads) { many(MLP, 50, supports_bias_grads); }
Test(play, gpt2_bias_grads) { many(GPT2, 40, supports_bias_grads); }
Test(play, odd_bias_grads) { many(ODD, 24, supports_bias_grads); }
Test(play, mlp_batched) { many(MLP, 50, supports_batched); }
Test(play, gpt2_batched) { many(GPT2, 40, supports_batched); }
Test(play, llama3_batched) { many(LLAMA3, 40, supports_batched); }
Test(play, odd_batched) { many(ODD, 24, supports_batched); }
Test(play, mlp_xent_max) { many(MLP, 50, supports_xent_max); }
Test(play, gpt2_xent_max) { many(GPT2, 40, supports_xent_max); }
Test(play, mlp_xent_grad) { many(MLP, 50, supports_xent_grad); }
Test(play, gpt2_xent_grad) { many(GPT2, 40, supports_xent_grad); }
Test(play, odd_xent_grad) { many(ODD, 24, supports_xent_grad); }
Test(play, mlp_taken_apart) { many(MLP, 150, supports_single); }
Test(play, gpt2_taken_apart) { many(GPT2, 75, supports_single); }
Test(play, odd_taken_apart) { many(ODD, 24, supports_single); }
/* What is cheap to keep is kept. */
static const char room[] = "\nlimit memory 1 TB";
Test(play, mlp_kept) { many_with(room, MLP, 75, NULL, false); }
Test(play, gpt2_kept) { many_with(room, GPT2, 75, NULL, false); }
Test(play, llama3_kept) { many_with(room, LLAMA3, 75, NULL, false); }
Test(play, odd_kept) { many_with(room, ODD, 24, NULL, false); }
Test(play, gpt2_kept_fused) { many_with(room, GPT2, 75, supports_all, false); }
Test(play, gpt2_kept_beside) { many_with(room, GPT2, 50, supports_all, true); }
Test(play, odd_kept_fused) { many_with(room, ODD, 24, supports_all, false); }

/* Chunks of logits are put together, or cut, along rows of a sequence that is split zigzag: what meets them
 * behind is of the same tokens. */
Test(play, chunks_of_a_zigzag_sequence) {
  static const char *const splits[] = {"embed, seq over c zigzag", "vocab, seq over c zigzag",
                                       "seq over c zigzag split embed, seq over d contiguous"};
  Model m =
      model_open(NULL,
                 "model M { axis batch, seq, embed = 8, head = 2, hd = 2, vocab = 16\n"
                 "  input tokens: index(vocab)[batch, seq]  input targets: index(vocab)[batch, seq]\n"
                 "  param table[vocab, embed], wq[embed, head, hd], wv[embed, head, hd], wo[head, hd, embed] "
                 "~ normal(1)\n"
                 "  x = lookup(table, tokens)  q = dot[embed](x, wq)\n"
                 "  x = x + dot[head, hd](attend[seq, hd](q, q, dot[embed](x, wv), mask = causal), wo)\n"
                 "  z = dot[embed](x, table)  often = select(less(tokens, targets), 1, 5)\n"
                 "  aux 0.1 * mean[batch, seq](peak[vocab](z) * often)\n"
                 "  loss xent[vocab](z, targets) * often per known(targets) }",
                 NULL);
  for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
    const char *recipe = zb_printf(m.c.a,
                                   "mesh c = 2%s split %s attention gather chunk vocab = 2 "
                                   "bind batch = 2, seq = 16",
                                   strstr(splits[i], "over d") ? ", d = 2" : "", splits[i]);
    Plan q = plan_of(m.g, recipe), ref = plan_of(m.g, "bind batch = 2, seq = 16");
    Play one, y;
    play(&one, ref.p, false);
    play(&y, q.p, false);
    compare(&one, &y, recipe);
    play_end(&y);
    play_end(&one);
    plan_close(&ref);
    plan_close(&q);
  }
  model_close(&m);
}
