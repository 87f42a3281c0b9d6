/* What has its name is on the disk, with all that is in it: each step on the way there waits for that, and
 * says when it fails. */
#include "runtime/exec/ckpt/ckpt.h"
#include "tests/unit/exec/manifest_file.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

SCRATCH_SUITE(synced);

static ZbErr err;
static const ZxTensorInfo two[] = {{"x", 1, {4}}, {"y", 1, {4}}};

static bool is_there(const char *path) { return access(path, F_OK) == 0; }

/* Waits so often; where the disk fails at any of these, that is said of `of`, unless it is no matter
 * there. */
typedef struct {
  void (*before)(void); /* NULL: nothing */
  bool (*act)(void);
  const char *of[4]; /* NULL: no matter; "": all have been said */
  int code;          /* with which it fails */
} Waits;
static bool once(const Waits *w, int code, int after) {
  scratch_sync_fails(0, 0);
  if (w->before) w->before();
  scratch_sync_fails(code, after);
  scratch_synced();
  return w->act();
}
static void waits(Waits w) {
  int n = 0;
  while (!w.of[n] || *w.of[n]) n++;
  cr_assert(once(&w, 0, 0), "%s", err.text);
  cr_expect_eq(scratch_synced(), n);
  for (int i = 0; i < n; i++) {
    bool ok = once(&w, w.code, i);
    cr_expect_eq(ok, !w.of[i], "%d: %s", i, err.text);
    if (ok) continue;
    says(err, w.of[i]);
    says(err, strerror(w.code));
  }
  scratch_sync_fails(0, 0);
}

/* ---- weights ---- */
static bool write_weights(void) {
  ZbOut *out = zx_weights_create(scratch("w"), two, 2, &err);
  cr_assert(out, "%s", err.text);
  ZxWeights *w = zx_weights_open(zb_out_tmp(out), true, &err);
  cr_assert(w, "%s", err.text);
  if (!zx_weights_close(w, &err)) return zb_out_discard(out), false;
  return zb_out_commit(out, &err);
}
/* Its bytes, those bytes once more when it gets its name, and the name. */
Test(synced, weights) { waits((Waits){NULL, write_weights, {"/w", "/w", NULL, ""}, EIO}); }

/* Nobody waits for what is only read. */
static bool read_weights(void) {
  ZxWeights *w = zx_weights_open(scratch("w"), false, &err);
  return w && zx_weights_close(w, &err);
}
Test(synced, reading) {
  cr_assert(write_weights());
  waits((Waits){NULL, read_weights, {""}, EIO});
}

/* ---- checkpoints ---- */
static bool write_manifest(void) {
  ZxManifest m = {.step = 1, .samples = 1, .version = "1", .model = "M", .command = "", .recipe = ""};
  static const char *const states[] = {"m"};
  cr_assert(zx_contents_make(a, two, 2, states, 1, NULL, NULL, 16, &m.c, &err), "%s", err.text);
  return zx_manifest_write(&m, scratch("."), &err);
}
Test(synced, manifest) {
  waits((Waits){NULL,
                write_manifest,
                {"/model.safetensors.index.json", "/optimizer.safetensors.index.json", "/manifest.json", ""},
                EIO});
}

static const char *dir;
static void make_one(void) {
  dir = zb_strdup(a, scratch("kept"));
  zx_ckpt_remove(zx_ckpt_path(a, dir, 1), NULL);
  zx_ckpt_remove(zx_ckpt_tmp(a, dir, 1, "run"), NULL);
  manifest_file(a, zx_ckpt_tmp(a, dir, 1, "run"), 1, 1);
}
static bool publish(void) {
  const char *tmp = zx_ckpt_tmp(a, dir, 1, "run"), *path = zx_ckpt_path(a, dir, 1);
  bool ok = zx_ckpt_publish(tmp, path, &err);
  cr_expect(is_there(path) == !is_there(tmp));
  return ok;
}
/* What the folder has in it, and its own name. */
Test(synced, checkpoint) {
  scratch_folder("kept");
  waits((Waits){make_one, publish, {"/step-00000001.run.tmp", "/kept", ""}, EIO});
  waits((Waits){make_one, publish, {NULL, NULL, ""}, EINVAL}); /* file systems that cannot */
  waits((Waits){make_one, publish, {NULL, NULL, ""}, EROFS});
}
