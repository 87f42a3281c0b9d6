/* zc: the compiler's command line. Reads options, loads, compiles, prints, writes; decides nothing else. */
#include "compiler/compiler.h"
#include "lang/ast.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, FAILED = 1, USAGE = 2 };

static const char help[] =
    "usage: zc MODEL.zug -o OUT.zsg [options]   compile a model to a stage graph\n"
    "       zc MODEL.zug --check [options]      check all models and blocks of the file\n"
    "       zc dump GRAPH.zsg                   print a stage graph as text\n"
    "       zc fmt [--check] FILE.zug...        lay files out as those of the examples are; `-` is a filter\n"
    "       zc --explain CODE                   what a message means and how to repair its cause\n"
    "       zc --list LIBRARY [-I DIR]          what a library holds, such as std.nn: its blocks\n"
    "\n"
    "  -o FILE           write the stage graph here, all of it or nothing; only a stage graph is replaced\n"
    "  -m MODEL          which model of the file (default: its only one)\n"
    "  -D NAME=VALUE     override a static of the model; may be repeated\n"
    "  --config FILE     take the statics from a config.json, or the one of a folder, as the model's weights "
    "say; -D goes on top\n"
    "  --names NAME      which weights of the model say so (default: the only ones with a `config`)\n"
    "  -I DIR            search `use` here after the file's own folder; may be repeated\n"
    "  -d PASS           print the program after a pass: parse, elab, simpl, grad, final; may be repeated\n"
    "  -q                no line about success\n"
    "  --check           only check; no output; with `fmt`: name the files that it would change, and fail\n"
    "  --diag FORM       messages as `text` or `json` (one object a line)\n"
    "  --warn-as-error   fail on warnings too\n"
    "  --explain CODE    explain a message by its code, such as Z0201\n"
    "  --list LIBRARY    the blocks of a library or of a file: axes, arguments with their defaults, results\n"
    "  --version, --help\n"
    "\n"
    "Exit code: 0 done, 1 errors in the program or the files, 2 wrong usage.\n";

typedef struct {
  const char *input, *output, *list;
  ZcOptions compile;
  ZcDefine *defines;
  const char **include;
  uint32_t ninclude;
  uint32_t dump; /* bit i: print after zc_pass_names[i] */
  bool check, quiet, json, strict;
} Options;

static int usage(const char *fmt, ...) {
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  zb_show_all(text, sizeof text);
  fprintf(stderr, "zc: %s\nTry `zc --help`.\n", text);
  return USAGE;
}

static void put_text(FILE *f, ZbText *t) {
  if (t->len) fwrite(t->s, 1, t->len, f);
  zb_text_free(t);
}

/* ---- options ------------------------------------------------------------------------------------------- */
static int add_define(ZbArena *a, Options *o, const char *text) {
  const char *eq = strchr(text, '=');
  if (!eq || eq == text || !eq[1]) return usage("-D %s: write -D name=value", text);
  ZcDefine d = {zb_strndup(a, text, (size_t)(eq - text)), eq + 1};
  ZB_PUSH(a, o->defines, o->compile.ndefines, d);
  return OK;
}

static int add_dump(Options *o, const char *pass) {
  size_t n = 0;
  for (; zc_pass_names[n]; n++) {
    if (strcmp(zc_pass_names[n], pass)) continue;
    o->dump |= 1u << n;
    return OK;
  }
  const char *near = zb_nearest(pass, zc_pass_names, n);
  return usage("-d %s: no such pass%s%s%s", pass, near ? "; did you mean `" : "", near ? near : "",
               near ? "`?" : "");
}

static int explain(const char *code) {
  const char *text = zl_explain(code);
  if (!text) return usage("--explain %s: no such code; codes look like Z0201", code);
  printf("%s%s", text, text[0] && text[strlen(text) - 1] == '\n' ? "" : "\n");
  return OK;
}

/* Sets *done when all has been said already (--help and the like), whatever the result. */
static int read_options(ZbArena *a, int argc, char **argv, Options *o, bool *done) {
  enum { CHECK = 256, CONFIG, NAMES, DIAG, WARN, EXPLAIN, LIST, VERSION, HELP };
  static const struct option names[] = {
      {"check", no_argument, NULL, CHECK},        {"config", required_argument, NULL, CONFIG},
      {"names", required_argument, NULL, NAMES},  {"diag", required_argument, NULL, DIAG},
      {"warn-as-error", no_argument, NULL, WARN}, {"explain", required_argument, NULL, EXPLAIN},
      {"list", required_argument, NULL, LIST},    {"version", no_argument, NULL, VERSION},
      {"help", no_argument, NULL, HELP},          {NULL, 0, NULL, 0}};
  int c, rc = OK;
  ZbErr err;
  *done = true;
  opterr = 0;
  while (rc == OK && (c = getopt_long(argc, argv, ":o:m:D:I:d:qh", names, NULL)) != -1) {
    switch (c) {
    case 'o': o->output = optarg; break;
    case 'm': o->compile.model = optarg; break;
    case 'D': rc = add_define(a, o, optarg); break;
    case 'I': ZB_PUSH(a, o->include, o->ninclude, optarg); break;
    case 'd': rc = add_dump(o, optarg); break;
    case 'q': o->quiet = true; break;
    case CHECK: o->check = true; break;
    case CONFIG: o->compile.config = optarg; break;
    case NAMES: o->compile.names = optarg; break;
    case WARN: o->strict = true; break;
    case DIAG:
      o->json = !strcmp(optarg, "json");
      if (!o->json && strcmp(optarg, "text")) return usage("--diag %s: write `text` or `json`", optarg);
      break;
    case EXPLAIN: return explain(optarg);
    case LIST: o->list = optarg; break;
    case VERSION: printf("zc (zug) %s\n", PACKAGE_VERSION); return OK;
    case 'h':
    case HELP: fputs(help, stdout); return OK;
    default:
      zb_option_failed(c, argv, names, &err);
      return usage("%s%s%s", err.text, *err.help ? "; " : "", err.help);
    }
  }
  o->compile.defines = o->defines;
  if (rc != OK) return rc;
  *done = false;
  return OK;
}

static int check_options(int argc, char **argv, Options *o) {
  if (o->list) return optind < argc ? usage("--list takes one library, and no input file") : OK;
  if (optind >= argc) return usage("no input file");
  if (optind + 1 < argc)
    return usage("one input file at a time: `%s` and `%s`", argv[optind], argv[optind + 1]);
  o->input = argv[optind];
  if (o->check && o->output) return usage("--check writes nothing, so -o has no meaning");
  if (!o->check && !o->output && !o->dump) return usage("nothing to do: give -o OUT.zsg, --check or -d PASS");
  if (o->compile.names && !o->compile.config)
    return usage("--names says how to read the --config, which is missing");
  if (o->compile.config && o->output && zb_same_file(o->output, o->compile.config))
    return usage("-o %s would overwrite the --config", o->output);
  if (o->output && zb_same_file(o->output, o->input))
    return usage("-o %s would overwrite the input %s", o->output, o->input);
  return OK;
}

/* ---- output -------------------------------------------------------------------------------------------- */
static int fail_with(const ZbErr *err) {
  fprintf(stderr, "zc: %s\n", err->text);
  if (*err->help) fprintf(stderr, "  = help: %s\n", err->help);
  return FAILED;
}

/* "124,439,808" */
static const char *grouped(ZbArena *a, uint64_t n) {
  char *s = zb_printf(a, "%llu", (unsigned long long)n);
  size_t len = strlen(s);
  char *out = zb_alloc(a, len + len / 3 + 1), *p = out;
  for (size_t i = 0; i < len; i++) {
    if (i && (len - i) % 3 == 0) *p++ = ',';
    *p++ = s[i];
  }
  return out;
}

static void say_done(ZbArena *a, const Options *o, const ZgGraph *g) {
  printf("%s: %s, %s parameters;", zb_show(o->output), g->model, grouped(a, zg_param_count(g)));
  for (uint32_t i = 0; i < g->naxes; i++) {
    printf("%s %s", i ? "," : "", g->axes[i].name);
    if (g->axes[i].size) printf(" %lld", (long long)g->axes[i].size);
  }
  printf("; hash %016llx%016llx\n", (unsigned long long)g->hash[0], (unsigned long long)g->hash[1]);
}

static void print_after(void *arg, const char *pass, const ZgGraph *g) {
  const Options *o = arg;
  for (size_t i = 0; zc_pass_names[i]; i++) {
    if (strcmp(zc_pass_names[i], pass) || !(o->dump >> i & 1)) continue;
    ZbText t = {0};
    printf("# after %s\n", pass);
    zg_print(g, ZG_NONE, &t);
    put_text(stdout, &t);
  }
}

/* ---- files laid out ------------------------------------------------------------------------------------ */
static bool is_any(const uint8_t *head, size_t n) {
  (void)head, (void)n;
  return true; /* it has been read and parsed */
}

static char *read_stdin(ZbArena *a, size_t *n) {
  ZbText t = {0};
  char part[4096];
  for (size_t got; (got = fread(part, 1, sizeof part, stdin));) zb_text_put(&t, part, got);
  char *text = zb_strndup(a, t.len ? t.s : "", *n = t.len);
  zb_text_free(&t);
  return text;
}

/* The laid out text goes to where the file is, all of it or nothing, or from `-` to the standard output. */
static int put_formatted(const char *path, bool check, const char *text, size_t n, const ZbText *t) {
  bool same = t->len == n && (n == 0 || !memcmp(t->s, text, n)), filter = !strcmp(path, "-");
  ZbErr err;
  if (check) {
    if (!same) printf("%s\n", zb_show(path));
    return same ? OK : FAILED;
  }
  if (filter && t->len) fwrite(t->s, 1, t->len, stdout);
  if (filter || same) return OK;
  return zb_write_file(path, &(ZbKind){"a program", is_any}, t->s, t->len, &err) ? OK : fail_with(&err);
}

static int format_file(const char *path, bool check) {
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZbErr err;
  ZbText out = {0}, said = {0};
  size_t n;
  const char *text = strcmp(path, "-") ? zb_read_file(a, path, SIZE_MAX, &n, &err) : read_stdin(a, &n);
  int rc = text ? OK : fail_with(&err);
  if (text && !zl_format(a, s, d, strcmp(path, "-") ? path : "<stdin>", text, n, &out)) rc = FAILED;
  zl_print_text(d, &said);
  put_text(stderr, &said);
  if (rc == OK) rc = put_formatted(path, check, text, n, &out);
  zb_text_free(&out);
  zb_arena_free(a);
  return rc;
}

/* zc fmt [--check] FILE...: a file with errors is left alone, the others are done. */
static int format_files(int argc, char **argv) {
  int rc = OK, first = 2;
  bool check = first < argc && !strcmp(argv[first], "--check");
  first += check;
  if (first < argc && !strcmp(argv[first], "--")) first++;
  if (first >= argc) return usage("write `zc fmt [--check] FILE.zug...`, or `-` for the standard input");
  for (int i = first; i < argc; i++)
    if (argv[i][0] == '-' && argv[i][1])
      return usage("fmt: no option %s but --check, before the files", argv[i]);
  for (int i = first; i < argc; i++)
    if (format_file(argv[i], check) != OK) rc = FAILED;
  return rc;
}

/* ---- the three things it does -------------------------------------------------------------------------- */
static int dump_graph(ZbArena *a, const char *path) {
  ZbErr err;
  ZgGraph *g = zg_read_file(a, path, &err);
  if (!g) return fail_with(&err);
  ZbText t = {0};
  zg_print(g, ZG_NONE, &t);
  put_text(stdout, &t);
  return OK;
}

/* No file that the program uses may be the output. */
static bool leaves_sources(const ZlProgram *p, const char *output, ZbErr *err) {
  for (uint32_t i = 0; i < p->nfiles; i++)
    if (zb_same_file(output, p->files[i]->name))
      return zb_fail(err, "give the stage graph a name of its own",
                     "-o %s would overwrite %s, which the program uses", zb_show(output),
                     zb_show(p->files[i]->name));
  return true;
}

static ZgGraph *run(ZbArena *a, ZlSources *s, ZlDiags *d, Options *o, ZlProgram **program) {
  ZlOptions load = {o->include, o->ninclude};
  ZlProgram *p = *program = zl_load(a, s, d, o->input, &load);
  if (p && (o->dump & 1)) { /* zc_pass_names[0]: parse */
    ZbText t = {0};
    zl_dump(p, &t);
    put_text(stdout, &t);
  }
  if (!p || zl_errors(d)) return NULL;
  if (o->check) zc_check(a, s, d, p, &o->compile);
  else if (o->output || o->dump != 1) return zc_compile(a, s, d, p, &o->compile);
  return NULL;
}

static int compile(ZbArena *a, Options *o) {
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  o->compile.after = print_after;
  o->compile.arg = o;
  ZlProgram *p;
  ZgGraph *g = run(a, s, d, o, &p);
  ZbText t = {0};
  (o->json ? zl_print_json : zl_print_text)(d, &t);
  put_text(stderr, &t);
  if (zl_errors(d) || (o->strict && zl_warnings(d))) return FAILED;
  if (!o->output) return OK;
  ZbErr err;
  bool ok = zg_write(g, &t, &err) && leaves_sources(p, o->output, &err) &&
            zb_write_file(o->output, &(ZbKind){"a stage graph", zg_is_one}, t.s, t.len, &err);
  zb_text_free(&t);
  if (ok && !o->quiet) say_done(a, o, g);
  return ok ? OK : fail_with(&err);
}

/* A file as it is, or what `use` finds under that name. */
static int list_library(ZbArena *a, const Options *o) {
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZlOptions load = {o->include, o->ninclude};
  size_t n = strlen(o->list);
  bool file = n > 4 && !strcmp(o->list + n - 4, ".zug");
  const char *use = zb_printf(a, "use %s\n", o->list);
  ZlProgram *p =
      file ? zl_load(a, s, d, o->list, &load) : zl_load_text(a, s, d, "<--list>", use, strlen(use), &load);
  ZbText t = {0};
  const ZlFile *f = p && !zl_errors(d) ? p->files[0] : NULL;
  if (f && !file) f = f->uses[0].file;
  if (f) zc_list(s, f, &t);
  put_text(stdout, &t);
  (o->json ? zl_print_json : zl_print_text)(d, &t);
  put_text(stderr, &t);
  return f ? OK : FAILED;
}

int main(int argc, char **argv) {
  zb_begin();
  ZbArena *a = zb_arena_new();
  Options o = {0};
  bool done;
  int rc;
  if (argc > 1 && !strcmp(argv[1], "dump")) {
    rc = argc == 3 ? dump_graph(a, argv[2]) : usage("write `zc dump GRAPH.zsg`");
  } else if (argc > 1 && !strcmp(argv[1], "fmt")) {
    rc = format_files(argc, argv);
  } else {
    rc = read_options(a, argc, argv, &o, &done);
    if (!done) rc = check_options(argc, argv, &o);
    if (!done && rc == OK) rc = o.list ? list_library(a, &o) : compile(a, &o);
  }
  zb_arena_free(a);
  ZbErr err;
  return zb_close_stdout(&err) ? rc : fail_with(&err);
}
