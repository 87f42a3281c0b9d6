#include "base/base.h"
#include "graph/graph.h"

#define ZUG_KERNELS_CPU_H /* graph.h has the numbers of ops */
#include "kernels/cuda/pointwise.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/kernels/cuda/programs.h"

extern const char *const zk_cuda_texts[];

const char *programs_own_part(const char *text) {
  if (strncmp(text, zk_cuda_elems, strlen(zk_cuda_elems)) == 0) text += strlen(zk_cuda_elems);
  for (int i = 1; zk_cuda_texts[i - 1]; i += 2) {
    size_t n = strlen(zk_cuda_texts[i]);
    if (strncmp(text, zk_cuda_texts[i], n) == 0) text += n;
  }
  return text;
}

void programs_expect(const char *text, const char *file) {
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/unit/kernels/cuda/%s", ZUG_SRC, file);
  ZbArena *a = zb_arena_new();
  size_t n;
  ZbErr err;
  const char *want = zb_read_file(a, path, 1 << 20, &n, &err);
  cr_assert(want != NULL, "%s", err.text);
  cr_assert(strcmp(programs_own_part(text), want) == 0, "%s is not what is written now:\n%s", file,
            programs_own_part(text));
  zb_arena_free(a);
}

/* ---- the list ------------------ */
#define MOST 512
typedef void Launch(ZkCuda *cu, unsigned blocks, unsigned threads, const void *args);
static struct {
  int n, launched;
  bool built;
  char *text[MOST];
  Launch *launch[MOST];
} list;

static int find(const char *text) {
  int i = 0;
  while (i < list.n && strcmp(list.text[i], text) != 0) i++;
  return i;
}

void programs_add(char *text) {
  int i = find(text);
  cr_assert(i < MOST);
  if (i < list.n) free(text);
  else list.text[list.n++] = text;
}

int programs_count(void) { return list.n; }

void programs_drop(void) {
  for (int i = 0; i < list.n; i++) free(list.text[i]);
  list.n = 0, list.built = false;
}

/* ---- NVRTC ------------------ */
#ifdef HAVE_NVRTC
void programs_compile(void) {
  static const int archs[] = {80, 90};
  for (int i = 0; i < list.n; i++) { /* a few for the older generation too */
    void *cubin;
    size_t bytes = 0;
    ZbErr err;
    bool ok = zk_cuda_compile(list.text[i], archs[i % 4 != 0], &cubin, &bytes, &err);
    cr_assert(ok && bytes > 1000, "%s", ok ? "no code" : err.text);
    free(cubin);
  }
}
#endif

/* ---- the emulator ------------------ */
static void write_source(const char *path, const char *args) {
  FILE *f = fopen(path, "w");
  cr_assert(f != NULL);
  fprintf(f, "#include \"kernels/cuda/common.cuh\"\n");
  for (int i = 0; i < list.n; i++)
    fprintf(f,
            "#define zk_pointwise zk_pointwise_%d\nnamespace n%d {\n%s}\n#undef zk_pointwise\n"
            "extern \"C\" void launch_%d(ZkCuda *cu, unsigned blocks, unsigned threads, const %s *c) {\n"
            "  ZK_LAUNCH(cu, NULL, n%d::zk_pointwise_%d, blocks, threads, 0, *c);\n}\n",
            i, i, programs_own_part(list.text[i]), i, args, i, i);
  cr_assert(fclose(f) == 0);
}

void programs_build(const char *args) {
  char folder[] = "/tmp/zug-pointwise-XXXXXX", source[64], library[64], command[8192], name[32];
  cr_assert(mkdtemp(folder) != NULL);
  snprintf(source, sizeof source, "%s/pointwise.cc", folder);
  snprintf(library, sizeof library, "%s/pointwise.so", folder);
  write_source(source, args);
  snprintf(command, sizeof command,
           "%s -std=c++17 -DZK_EMU -O0 -shared -fPIC -Wno-unknown-pragmas %s -I'%s' -o %s %s", ZUG_CXX,
           ZUG_SANITIZE, ZUG_SRC, library, source);
  cr_assert(system(command) == 0, "%s", command);
  void *so = dlopen(library, RTLD_NOW);
  cr_assert(so != NULL, "%s", dlerror());
  for (int i = 0; i < list.n; i++) {
    snprintf(name, sizeof name, "launch_%d", i);
    *(void **)&list.launch[i] = dlsym(so, name);
    cr_assert(list.launch[i] != NULL);
  }
  unlink(source), unlink(library), rmdir(folder);
  list.built = true;
}

/* Instead of program.c's (--wrap), which has no NVRTC here. */
struct CUfunc_st *__wrap_zk_cuda_program(ZkCuda *cu, const ZkCall *call, const char *text);
void __wrap_zk_cuda_program_launch(ZkCuda *cu, const ZkCall *call, struct CUfunc_st *kernel, unsigned blocks,
                                   unsigned threads, void **args);

struct CUfunc_st *__wrap_zk_cuda_program(ZkCuda *cu, const ZkCall *call, const char *text) {
  (void)cu, (void)call;
  if (!list.built) return NULL;
  int i = find(text);
  cr_assert(i < list.n, "no such program:\n%s", programs_own_part(text));
  return (struct CUfunc_st *)&list.launch[i];
}

void __wrap_zk_cuda_program_launch(ZkCuda *cu, const ZkCall *call, struct CUfunc_st *kernel, unsigned blocks,
                                   unsigned threads, void **args) {
  (void)call;
  list.launched++;
  if (blocks > 0) (*(Launch **)kernel)(cu, blocks, threads, args[0]);
}

int programs_launched(void) { return list.launched; }
