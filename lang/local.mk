# lang: see the conventions at the top of Makefile.am.
noinst_LIBRARIES += liblang.a
liblang_a_SOURCES = \
  lang/lang.h lang/ast.h lang/cluster.def lang/directives.def lang/errors.def lang/schedules.def lang/format.h lang/internal.h lang/scan.h lang/words.h \
  lang/align.c \
  lang/ast.c \
  lang/cluster.c \
  lang/diag.c \
  lang/elsewhere.c \
  lang/elsewhere.def \
  lang/form.c \
  lang/format.c \
  lang/name.c \
  lang/amount.c \
  lang/optimizer.c \
  lang/precision.c \
  lang/updates.def \
  lang/recipe.c \
  lang/recipe_text.c \
  lang/recover.c \
  lang/span.c \
  lang/torch.c \
  lang/torch.def \
  lang/unit.c \
  lang/weights.c \
  lang/words.c
nodist_liblang_a_SOURCES = \
  lang/parse.tab.c lang/parse.tab.h lang/scan.yy.c lang/stdlib.embed.c lang/errors.embed.c
BUILT_SOURCES += lang/parse.tab.h
CLEANFILES += $(nodist_liblang_a_SOURCES)

# The library of the language and the explanations of all codes travel inside the tools.
lang/stdlib.embed.c: $(stdlib_files) base/embed.awk
	@$(MKDIR_P) $(@D)
	$(V_EMBED)$(EMBED) -v name=zl_stdlib -v root=$(srcdir)/stdlib/ $(filter %.zug,$^) > $@
lang/errors.embed.c: lang/ERRORS.md lang/errors.awk
	@$(MKDIR_P) $(@D)
	$(V_EMBED)$(AWK) -f $(srcdir)/lang/errors.awk $(filter %.md,$^) > $@

# Also when one target is made alone, which BUILT_SOURCES do not cover:
lang/format.$(OBJEXT) lang/recover.$(OBJEXT) lang/scan.yy.$(OBJEXT) lang/parse.tab.$(OBJEXT): lang/parse.tab.h
