# runtime/text: tokenizers. See the conventions at the top of Makefile.am.
noinst_LIBRARIES += libtext.a
libtext_a_SOURCES = \
  runtime/text/added.c \
  runtime/text/bpe.c \
  runtime/text/bytes.c \
  runtime/text/decode.c \
  runtime/text/detokenize.c \
  runtime/text/encode.c \
  runtime/text/json.c \
  runtime/text/json.h \
  runtime/text/load.c \
  runtime/text/marked.c \
  runtime/text/model.c \
  runtime/text/nf.c \
  runtime/text/normalize.c \
  runtime/text/post.c \
  runtime/text/precompiled.c \
  runtime/text/pretokenize.c \
  runtime/text/regex.c \
  runtime/text/room.h \
  runtime/text/strings.c \
  runtime/text/template/chats.c \
  runtime/text/template/eval.c \
  runtime/text/template/expr.c \
  runtime/text/template/filters.c \
  runtime/text/template/inside.h \
  runtime/text/template/json.c \
  runtime/text/template/learned.c \
  runtime/text/template/lex.c \
  runtime/text/template/messages.c \
  runtime/text/template/methods.c \
  runtime/text/template/parse.c \
  runtime/text/template/run.c \
  runtime/text/template/strings.c \
  runtime/text/template/template.c \
  runtime/text/template/template.h \
  runtime/text/template/tests.c \
  runtime/text/template/value.c \
  runtime/text/text.h \
  runtime/text/train.c \
  runtime/text/unicode.c \
  runtime/text/unicode.h \
  runtime/text/unigram.c \
  runtime/text/utf8.c \
  runtime/text/wordpiece.c
nodist_libtext_a_SOURCES = runtime/text/unicode.embed.c
libtext_a_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS) $(PCRE2_CFLAGS)
CLEANFILES += runtime/text/unicode.embed.c
runtime/text/unicode.embed.c: runtime/text/unicode.txt runtime/text/unicode.awk
	@$(MKDIR_P) $(@D)
	$(V_EMBED)$(AWK) -f $(srcdir)/runtime/text/unicode.awk $(srcdir)/runtime/text/unicode.txt > $@
