/* What is searched, what is found and why, against what it was: `make regenerate-whole` writes search.expect anew. */
#include "runtime/plan/search/search.h"
#include "tests/unit/plan/whole/whole.h"

#include <criterion/criterion.h>
#include <string.h>

static const char cluster[] =
    "cluster box { device memory %d MB, f32 100 GFLOPS, bf16 300 GFLOPS, products 0.8, attention 0.4\n"
    "  device attention_grad 0.7, stream 10 GB/s, launch 2 us, steal 0.5\n"
    "  level node 4, link 4 GB/s, latency 5 us, start 10 us, ramp 1 us\n"
    "  level pod 16, link 1 GB/s, latency 9 us, start 12 us, ramp 3 us }\n";

/* Of a recipe, or with everything open (recipe NULL): sizes by `bind`. */
typedef struct {
  const char *name, *model, *options;
  int64_t ranks, batch, seq;
  int memory; /* MB of a device */
  const char *recipe;
} Asked;
#define GPT2 "gpt2", "-D layers=6 -D heads=4 -D width=64 -D context=64 -D words=96"
#define LLAMA "llama3", "-D layers=4 -D heads=8 -D kv_heads=4 -D width=128 -D inner=384 -D words=512"
#define MIXTRAL                                                                                              \
  "mixtral", "-D layers=4 -D heads=4 -D kv_heads=2 -D width=64 -D inner=128 -D words=96 -D experts=8"
#define KEPT "micro ? precision compute bf16 optimizer adamw(lr = 1e-3)"
static const Asked cases[] = {
    {"all is open", GPT2, 8, 16, 64, 1000, NULL},
    {"one rank", GPT2, 1, 8, 64, 1000, NULL},
    {"little memory", GPT2, 8, 16, 64, 3, NULL},
    {"nothing fits", GPT2, 2, 4, 64, 1, NULL},
    {"no mesh", GPT2, 13, 7, 64, 1000, NULL},
    {"no micro-batch", GPT2, 3, 0, 0, 1000,
     "mesh data = ? bind batch = 12, seq = 64 split batch over data micro 3 optimizer adamw(lr = 1)"},
    {"experts", MIXTRAL, 8, 32, 64, 1000, NULL},
    {"a long sequence", LLAMA, 16, 4, 32768, 1000, NULL},
    {"all of the cluster", "mlp", NULL, 0, 128, 0, 1000, NULL},
    {"many samples", "mlp", NULL, 1, 1024, 0, 1000, NULL},
    {"some is given", LLAMA, 16, 0, 0, 1000,
     "mesh pipe = ?, data = ?, tensor = 2 bind batch = 32, seq = 256 split batch over data\n"
     "split kv, ffn, vocab over tensor else seq stages over pipe by cost shard states over data recompute "
     "Layer.mlp\n" KEPT},
    {"stages", LLAMA, 4, 0, 0, 1000,
     "mesh pipe = ? bind batch = 32, seq = 256 stages over pipe = ? schedule gpipe recompute ? limit memory "
     "200 MB\n" KEPT},
    {"parts", LLAMA, 2, 0, 0, 1000, "mesh pipe = ? bind batch = 4, seq = 256 stages over pipe = ? " KEPT},
    {"axes", GPT2, 4, 0, 0, 1000,
     "mesh data = 2, tensor = ? bind batch = 8, seq = 64 split batch over data split ? over tensor else ? "
     "shard ? over data\n"
     "pad vocab to 128 freeze wpe " KEPT},
    {"attention", LLAMA, 16, 0, 0, 1000,
     "mesh data = ?, tensor = 1, context = 4 bind batch = 8, seq = 16384 split batch over data split seq "
     "over context\n"
     "attention ? over context shard ? over data shard ? over context prefetch 2 " KEPT},
};

static void put_found(const ZpFound *f, ZbText *out) {
  zb_text_add(out, "  %.9g s, ranked %.9g; %llu bytes, ranked %llu, least %llu; live %u\n", f->seconds,
              f->closed, (unsigned long long)f->bytes, (unsigned long long)f->estimate,
              (unsigned long long)f->least, f->live);
}

static void put_search(const Asked *c, ZbText *out) {
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  Model m = model_open(c->model, NULL, c->options);
  const char *machine = zb_printf(a, cluster, c->memory);
  ZlProgram *machines = zl_load_text(a, s, d, "machine", machine, strlen(machine), NULL);
  const ZlCluster *on = zl_cluster(machines, d, NULL);
  ZbText text = {0};
  const ZpSize bind[] = {{"batch", c->batch}, {"seq", c->seq}};
  if (c->recipe) zb_text_add(&text, "recipe r {\n%s\n}\n", c->recipe);
  else zp_search_open(m.g, on, bind, c->seq ? 2 : 1, &text);
  ZlProgram *p = zl_load_text(a, s, d, "search", text.s, strlen(text.s), NULL);
  const ZlRecipe *r = zl_recipe_open(p, d, NULL);
  const ZpSearchOptions o = {.cluster = on, .ranks = c->ranks, .keep = 5, .whole = !c->recipe};
  const ZpOptions plain = {.threads = 1};
  const ZpSearch *found = r && !zl_errors(d) ? zp_search(a, m.g, r, &o, &plain, d) : NULL;
  zb_text_add(out, "== %s\n", c->name);
  ZbText said = {0}, json = {0};
  zl_print_text(d, &said);
  if (said.s) zb_text_add(out, "%s", said.s);
  if (found) {
    zp_show_search(found, out);
    for (uint32_t i = 0; i < found->nbest; i++) put_found(&found->best[i], out);
    if (found->nearest) put_found(found->nearest, out);
    zp_show_search_json(found, &json);
    zb_text_add(out, "as JSON: %08x\n", (unsigned)zb_stream(json.s));
    if (found->nbest) zp_search_recipes(found, 2, out);
  }
  zb_text_free(&text), zb_text_free(&said), zb_text_free(&json);
  model_close(&m);
  zb_arena_free(a);
}

Test(whole, searches) {
  ZbText t = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) put_search(&cases[i], &t);
  whole_expect(&t, "search.expect");
}
