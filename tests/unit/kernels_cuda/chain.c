/* The programs that chains become: their text, that NVRTC compiles them for GPUs that are not here, and what they
 * compute, compiled by the C++ compiler for the emulator. */
#include "base/base.h"
#include "graph/graph.h"

#define ZUG_KERNELS_CPU_H /* graph.h has the numbers of ops */
#include "kernels/cuda/chain.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/kernels_cuda/emu.h"

extern const char *const zk_cuda_texts[];

/* The program without what every program begins with. */
static const char *own_part(const char *text) {
  return text + strlen(zk_cuda_texts[1]) + strlen(zk_cuda_texts[3]);
}

#define OPS(...)                                                                                             \
  .nops = sizeof((ZkChainOp[]){__VA_ARGS__}) / sizeof(ZkChainOp), .ops = (ZkChainOp[]) { __VA_ARGS__ }

/* x * gain + bias, gain along the run, bias over it, rounded; and less(x, 0.5) */
static const ZkChain affine = {.nout = 2,
                               .out = {5, 7},
                               OPS({.op = ZG_OP_MUL, .a = 0, .b = 1}, {.op = ZG_OP_ADD, .a = 3, .b = 2},
                                   {.op = ZG_OP_CAST, .a = 4, .elem = ZK_BF16},
                                   {.op = ZG_OP_FILL, .num = 0.5f}, {.op = ZG_OP_LESS, .a = 0, .b = 6})};
static const ZkChain functions = {.nout = 1,
                                  .out = {8},
                                  OPS({.op = ZG_OP_TANH, .a = 0}, {.op = ZG_OP_EXP, .a = 1},
                                      {.op = ZG_OP_ERF, .a = 2}, {.op = ZG_OP_SUB, .a = 3, .b = 1},
                                      {.op = ZG_OP_KNOWN, .a = 0},
                                      {.op = ZG_OP_SELECT, .a = 5, .b = 4, .c = 2}, {.op = ZG_OP_COS, .a = 6},
                                      {.op = ZG_OP_DIV, .a = 7, .b = 3})};
static const ZkChain constants = {
    .nout = 2, .out = {0, 1}, OPS({.op = ZG_OP_FILL, .num = 2.5f}, {.op = ZG_OP_AXSIZE, .num = 33})};
static const ZkChain to_ids = {.nout = 1, .out = {1}, OPS({.op = ZG_OP_CAST, .a = 0, .elem = ZK_I32})};

/* Tolerances: some roundings of results of size 1, as in ew.c. */
static const Case cases[] = {
    {.op = ZG_OP_CHAIN,
     .dims = "b=3 s=5 e=16",
     .in = {{"bse"}, {"e"}, {"bs"}},
     .out = {{"bse", EXACT}, {"bse"}},
     .chain = &affine,
     .tol = 4e-3},
    {.op = ZG_OP_CHAIN,
     .dims = "b=40 s=3 e=7",
     .in = {{"bse"}, {"e"}, {""}},
     .out = {{"bse", EXACT}, {"bse"}},
     .chain = &affine,
     .tol = 4e-3},
    {.op = ZG_OP_CHAIN,
     .dims = "s=8 e=24",
     .in = {{"se"}},
     .out = {{"se"}},
     .chain = &functions,
     .tol = 2e-6},
    {.op = ZG_OP_CHAIN, .dims = "s=5 e=3", .in = {{"se"}}, .out = {{"se"}}, .chain = &functions, .tol = 2e-6},
    {.op = ZG_OP_CHAIN, .dims = "s=3 e=11", .out = {{"se"}, {"se"}}, .chain = &constants},
    {.op = ZG_OP_CHAIN, .dims = "s=16", .in = {{"s", EXACT, -9, 9}}, .out = {{"s", ID}}, .chain = &to_ids},
    {.op = ZG_OP_CHAIN,
     .dims = "s=0 e=8",
     .in = {{"se"}, {"e"}, {"s"}},
     .out = {{"se"}, {"se"}},
     .chain = &affine},
};
#define CASES (sizeof cases / sizeof *cases)

static char *text_of(const ZkCall *call) {
  ZbText t = {0};
  ZkChainShape shape = zk_chain_shape(call, true);
  zk_chain_text(&t, call, &shape);
  return t.s;
}

/* ---- the text ------------------ */
static void first_text(const ZkCall *call, void *arg) {
  char **text = arg;
  if (!*text) *text = text_of(call);
}

Test(chain, text) {
  char *text = NULL, path[4096];
  each_call(&cases[0], first_text, &text);
  snprintf(path, sizeof path, "%s/tests/unit/kernels_cuda/chain.txt", ZUG_SRC);
  ZbArena *a = zb_arena_new();
  size_t n;
  ZbErr err;
  const char *want = zb_read_file(a, path, 1 << 20, &n, &err);
  cr_assert(want != NULL, "%s", err.text);
  cr_assert(strcmp(own_part(text), want) == 0, "chain.txt is not what is written now:\n%s", own_part(text));
  zb_arena_free(a);
  free(text);
}

/* ---- all texts of the cases, each once ------------------ */
#define MOST 128
static struct {
  int n;
  char *text[MOST];
} list;

static int find(const char *text) {
  int i = 0;
  while (i < list.n && strcmp(list.text[i], text) != 0) i++;
  return i;
}

static void collect(const ZkCall *call, void *arg) {
  (void)arg;
  char *text = text_of(call);
  int i = find(text);
  cr_assert(i < MOST);
  if (i < list.n) free(text);
  else list.text[list.n++] = text;
}

static void collect_all(void) {
  for (size_t i = 0; i < CASES; i++) each_call(&cases[i], collect, NULL);
  cr_assert(list.n >= 10);
}

static void drop_all(void) {
  for (int i = 0; i < list.n; i++) free(list.text[i]);
}

#ifdef HAVE_NVRTC
Test(chain, nvrtc) {
  static const int archs[] = {80, 90};
  collect_all();
  for (int i = 0; i < list.n; i++) { /* a few for the older generation too */
    void *cubin;
    size_t bytes = 0;
    ZbErr err;
    bool ok = zk_cuda_compile(list.text[i], archs[i % 4 != 0], &cubin, &bytes, &err);
    cr_assert(ok && bytes > 1000, "%s", ok ? "no code" : err.text);
    free(cubin);
  }
  void *cubin;
  size_t bytes;
  ZbErr err;
  cr_assert(!zk_cuda_compile("int f( {", 90, &cubin, &bytes, &err) && strstr(err.text, "error"), "%s",
            err.text);
  drop_all();
}
#endif

/* ---- the programs, run ------------------ */
typedef void Launch(ZkCuda *cu, unsigned blocks, const ZkcChain *c);
static Launch *launch[MOST];

static void write_source(const char *path) {
  FILE *f = fopen(path, "w");
  cr_assert(f != NULL);
  fprintf(f, "#include \"kernels/cuda/common.cuh\"\n");
  for (int i = 0; i < list.n; i++)
    fprintf(f,
            "#define zk_chain zk_chain_%d\nnamespace n%d {\n%s}\n#undef zk_chain\n"
            "extern \"C\" void launch_%d(ZkCuda *cu, unsigned blocks, const ZkcChain *c) {\n"
            "  ZK_LAUNCH(cu, NULL, n%d::zk_chain_%d, blocks, 256, 0, *c);\n}\n",
            i, i, own_part(list.text[i]), i, i, i);
  cr_assert(fclose(f) == 0);
}

static void build(void) {
  char folder[] = "/tmp/zug-chain-XXXXXX", source[64], library[64], command[8192], name[32];
  cr_assert(mkdtemp(folder) != NULL);
  snprintf(source, sizeof source, "%s/chains.cc", folder);
  snprintf(library, sizeof library, "%s/chains.so", folder);
  write_source(source);
  snprintf(command, sizeof command,
           "%s -std=c++17 -DZK_EMU -O1 -shared -fPIC -Wno-unknown-pragmas %s -I'%s' -o %s %s", ZUG_CXX,
           ZUG_SANITIZE, ZUG_SRC, library, source);
  cr_assert(system(command) == 0, "%s", command);
  void *so = dlopen(library, RTLD_NOW);
  cr_assert(so != NULL, "%s", dlerror());
  for (int i = 0; i < list.n; i++) {
    snprintf(name, sizeof name, "launch_%d", i);
    *(void **)&launch[i] = dlsym(so, name);
    cr_assert(launch[i] != NULL);
  }
  unlink(source), unlink(library), rmdir(folder);
}

static void run_program(const ZkEnv *env, const ZkCall *call) {
  ZkCuda *cu = env->device;
  ZkChainShape shape = zk_chain_shape(call, true);
  char *text = text_of(call);
  int i = find(text);
  cr_assert(i < list.n);
  for (int k = 0; k < call->nin; k++) shape.args.in[k] = call->in[k].data;
  for (int k = 0; k < call->nout; k++) shape.args.out[k] = call->out[k].data;
  if (shape.args.units.total > 0) launch[i](cu, 2, &shape.args);
  free(text);
}

Test(chain, emulated) {
  collect_all();
  build();
  emu_use_chain(run_program);
  for (size_t i = 0; i < CASES; i++) conform(__FILE__, (int)i, &cases[i]);
  drop_all();
}
