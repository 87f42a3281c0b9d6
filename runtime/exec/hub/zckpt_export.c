/* zckpt export: parameters as a folder for other programs, from a checkpoint or a safetensors file. */
#include "runtime/exec/ckpt/zckpt.h"
#include "graph/adapter.h"
#include "runtime/exec/hub/hub.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

/* The graph that the command of the checkpoint's run names: the word that ends as such files do. */
static const char *graph_of(const ZxManifest *m, ZbArena *a) {
  char *words = zb_strdup(a, m->command), *rest = words;
  for (char *w; (w = strsep(&rest, " "));)
    if (zb_ends(w, ".zsg")) return w;
  return NULL;
}

static ZgGraph *read_graph(const ZsOptions *o, const ZxManifest *m, ZbArena *a, ZbErr *err) {
  const char *path = o->graph, *named = !path && m ? graph_of(m, a) : NULL;
  if (!path) path = named;
  if (!path) {
    zb_fail(err, "give --graph G.zsg", "%s does not say which graph it is of", zb_show(o->path[0]));
    return NULL;
  }
  ZgGraph *g = zg_read_file(a, path, err);
  if (!g && named) {
    zb_fail_more(err, "; it is the graph that %s names", zb_show(o->path[0]));
    snprintf(err->help, sizeof err->help, "say with --graph where it is");
  }
  const char *hash = m ? zx_manifest_fact(m, "model", "hash") : NULL;
  if (g && hash && strcmp(hash, zg_hash_computed(a, g)))
    printf("note: %s does not compute what the graph of %s does\n", zb_show(path), zb_show(o->path[0]));
  return g;
}

/* All parameters are what was written: they are not looked at again. */
static bool check_ckpt(const ZsOptions *o, const ZxManifest **m, ZbArena *a, ZbErr *err) {
  struct stat st;
  *m = NULL;
  if (stat(o->path[0], &st) < 0 || !S_ISDIR(st.st_mode)) return true; /* a file */
  ZsCkpt k;
  if (!zs_open(&k, a, o->path[0], err)) return false;
  bool ok = zx_ckpt_look(k.m, k.dir, err);
  for (uint32_t i = 0; ok && i < k.m->c.nparams; i++) ok = zs_read(&k, i, NULL, NULL, err);
  zs_close(&k);
  *m = k.m;
  return ok;
}

static void tell(const ZsOptions *o, const ZxManifest *m, const ZxExported *x, ZbArena *a) {
  char bytes[24];
  const char *of = m ? zb_printf(a, " of step %" PRId64, m->step) : "";
  const char *what = o->merge                        ? "parameters, adapters added,"
                     : x->what == ZX_EXPORT_ADAPTERS ? "adapters"
                                                     : "parameters";
  printf("%s: the %s%s as %" PRIu32 " tensors, %s in %" PRIu32 " file%s%s", zb_show(o->out), what, of,
         x->tensors, zb_bytes(bytes, x->bytes), x->files, x->files == 1 ? "" : "s",
         !x->config                      ? ""
         : x->what == ZX_EXPORT_ADAPTERS ? "; adapter_config.json"
                                         : "; config.json");
  if (x->packed) printf("; %" PRIu32 " of them in %d bits", x->packed, zk_elem_info[x->format].bits);
  if (x->copied) printf("; %" PRIu32 " files from %s", x->copied, zb_show(o->like));
  printf("\n");
  if (x->what == ZX_EXPORT_ADAPTERS)
    printf("note: that is without the model that they are of; --merge writes both as one\n");
  if (!x->config) printf("note: there is no config.json: the names `%s` say nothing of it\n", o->names);
}

/* Finds the format of matrices that --weights and --group say. */
static bool choose_format(const ZsOptions *o, ZxExportOptions *e, ZbArena *a, ZbErr *err) {
  static const char *const words[] = {"int8", "int4"}; /* in the order of --weights */
  if (!o->weights) return true;
  if (e->what == ZX_EXPORT_ADAPTERS)
    return zb_fail(err, "add them to the model: --merge", "--weights is of whole models; these are adapters");
  e->packed = zk_elem_named(zb_printf(a, "%s group %" PRId64, words[o->weights - 1], o->group));
  return e->packed != ZK_NONE ||
         zb_fail(err, "take 32, 64 or 128", "--group %" PRId64 " is none of --weights", o->group);
}

ZsEnd zs_export(const ZsOptions *o, ZbArena *a, ZbErr *err) {
  const ZxManifest *m;
  if (zb_lies_in(o->path[0], o->out)) { /* --force would remove it */
    zb_fail(err, "choose another name", "-o %s holds %s, from which it is made", zb_show(o->out),
            zb_show(o->path[0]));
    return ZS_FAILED;
  }
  if (!check_ckpt(o, &m, a, err)) return ZS_FAILED;
  ZgGraph *g = read_graph(o, m, a, err);
  ZxMap map;
  ZxShards from;
  if (!g || !zx_map_open(&map, a, g, o->names, err) || !zx_shards_open(&from, a, o->path[0], err))
    return ZS_FAILED;
  ZxExportWhat apart = zg_has_adapters(g) ? ZX_EXPORT_ADAPTERS : ZX_EXPORT_ALL;
  ZxExportOptions e = {.what = o->merge ? ZX_EXPORT_MERGED : apart,
                       .out = o->out,
                       .like = o->like,
                       .as = zx_file_elems[o->dtype],
                       .most = (uint64_t)o->shard_size,
                       .force = o->force};
  if (!choose_format(o, &e, a, err)) {
    zx_shards_close(&from);
    return ZS_FAILED;
  }
  ZxExported done;
  bool ok = zx_export(a, &map, &from, &e, &done, err);
  zx_shards_close(&from);
  if (!ok) return ZS_FAILED;
  tell(o, m, &done, a);
  return ZS_OK;
}
