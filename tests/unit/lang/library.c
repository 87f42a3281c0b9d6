/* Files that use files, of a library with folders: this one in place of that which the tools carry. */
#include "lang/internal.h"

#include <criterion/criterion.h>
#include <string.h>

#define BLOCK(name) "block " name "(x: real[..]) -> real[..] { return x }\n"

const char *const zl_stdlib[] = {"near.zug",
                                 BLOCK("outer"),
                                 "far.zug",
                                 BLOCK("far"),
                                 "deep/near.zug",
                                 BLOCK("inner"),
                                 "deep/first.zug",
                                 "use near use far use deep.second as second\n" BLOCK("first"),
                                 "deep/second.zug",
                                 "use near use far use deep.near as again\n" BLOCK("second"),
                                 "lost.zug",
                                 "use first\n",
                                 "circle/a.zug",
                                 "use far use b\n",
                                 "circle/b.zug",
                                 "use far use c\n",
                                 "circle/c.zug",
                                 "use deep.near use b\n",
                                 NULL};

typedef struct {
  ZbArena *a;
  ZlDiags *d;
  ZlProgram *p;
  ZbText out;
} Case;

static Case load(const char *text) {
  Case c = {.a = zb_arena_new()};
  ZlSources *s = zl_sources_new(c.a);
  c.d = zl_diags_new(c.a, s);
  c.p = zl_load_text(c.a, s, c.d, "no-such-folder/test.zug", text, strlen(text), NULL);
  zl_print_text(c.d, &c.out);
  return c;
}
static void done(Case *c) {
  zb_text_free(&c->out);
  zb_arena_free(c->a);
}

static const ZlFile *file(const Case *c, const char *name) {
  for (uint32_t i = 0; i < c->p->nfiles; i++)
    if (strcmp(c->p->files[i]->name, name) == 0) return c->p->files[i];
  cr_assert(false, "no %s was read", name);
  return NULL;
}

static void uses(const Case *c, const ZlFile *f, const char *alias, const char *name) {
  const ZlUse *u = zl_find_use(f, alias);
  cr_assert(u && u->file, "%s: %s is no file", f->name, alias);
  cr_expect(u->file == file(c, name), "%s: %s is %s", f->name, alias, u->file->name);
}

/* What a file of the library uses is looked for in its own folder, then at the top; a file is read once, for
 * all. */
Test(library, files_use_their_neighbours) {
  Case c = load("use deep.first use near use deep.near as deep use far use far as too\n");
  cr_assert_eq(zl_errors(c.d), 0, "%s", c.out.s);
  cr_expect_eq(c.p->nfiles, 6);
  const ZlFile *first = file(&c, "<library>/deep/first.zug"), *second = file(&c, "<library>/deep/second.zug");
  uses(&c, c.p->files[0], "first", first->name);
  uses(&c, c.p->files[0], "near", "<library>/near.zug");
  uses(&c, c.p->files[0], "deep", "<library>/deep/near.zug");
  uses(&c, c.p->files[0], "far", "<library>/far.zug");
  uses(&c, c.p->files[0], "too", "<library>/far.zug");
  uses(&c, first, "near", "<library>/deep/near.zug");
  uses(&c, first, "far", "<library>/far.zug");
  uses(&c, first, "second", second->name);
  uses(&c, second, "near", "<library>/deep/near.zug");
  uses(&c, second, "far", "<library>/far.zug");
  uses(&c, second, "again", "<library>/deep/near.zug");
  done(&c);
}

/* Nor does a file of the library see the folders of others, so no folder is named as one that was
 * looked in. */
Test(library, files_see_only_the_library) {
  Case c = load("use lost\n");
  cr_expect_eq(zl_errors(c.d), 1);
  cr_expect(strstr(c.out.s, "[Z0005]: no file first.zug") && !strstr(c.out.s, "looked in"), "%s", c.out.s);
  done(&c);
  c = load("use first\n");
  cr_expect(strstr(c.out.s, "= note: looked in no-such-folder/\n"), "%s", c.out.s);
  done(&c);
}

/* The circle alone is named: neither the way to it, nor what was read on the way. */
Test(library, circle) {
  Case c = load("use near use circle.a\n");
  cr_expect_eq(zl_errors(c.d), 1);
  cr_expect(
      strstr(c.out.s, "= note: <library>/circle/b.zug -> <library>/circle/c.zug -> <library>/circle/b.zug\n"),
      "%s", c.out.s);
  done(&c);
}
