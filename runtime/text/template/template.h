/* template: from a conversation to the text that a model was trained to see, as the chat template of its
 * tokenizer says: Jinja, as transformers renders it. No files; the caller reads chat_template.jinja or
 * tokenizer_config.json.
 *
 *   source -> lex.c -> parse.c, expr.c: a tree, once, when a template is loaded. What is not built here is
 *                                       refused then, with its line
 *   messages, tools -> messages.c: values, whose texts know where they came from
 *   tree, values -> run.c, eval.c: text with spans; filters.c, tests.c (functions, too) and methods.c have
 *                                  what templates may call, value.c, strings.c and json.c what values are
 *   text with spans -> zt_encode_marked (text.h): ids
 *
 * A template is a program that somebody else wrote: its steps, depth and bytes are bounded, and it can
 * neither change what it was given nor see anything else. What comes from a conversation stays marked through all
 * operations on texts, so that a user who types a special token has typed text. */
#ifndef ZUG_TEXT_TEMPLATE_H
#define ZUG_TEXT_TEMPLATE_H

#include "runtime/text/text.h"

enum {
  ZT_TEMPLATE_LIMIT = 1 << 20, /* bytes of a template */
  ZT_TEMPLATE_STEPS =
      5000000, /* of a conversation: nodes that are evaluated, and bytes that are looked at, / 64 */
  ZT_TEMPLATE_BYTES = 256 << 20, /* that are made meanwhile, */
  ZT_TEMPLATE_OUTPUT = 64 << 20, /* and that are text in the end */
  ZT_TEMPLATE_DEPTH = 1000       /* macros, blocks, expressions and lists in each other */
};

/* A template does not change once it is compiled: all threads share it. */
typedef struct ZtTemplate ZtTemplate;
/* Compiles source[0..n); `name` is for messages. NULL with a message that has the line and the
 * construct: it is not Jinja, or more of it than is built here. */
ZtTemplate *zt_template_new(const char *source, size_t n, const char *name, ZbErr *err);
void zt_template_free(ZtTemplate *t); /* NULL is allowed */

struct cJSON;
/* A conversation. All but messages may be NULL. */
typedef struct {
  const struct cJSON *messages;          /* a list of {"role": .., "content": ..}, as clients send them */
  const struct cJSON *tools, *documents; /* lists */
  const struct cJSON *more;              /* an object: further variables, such as enable_thinking */
  const struct cJSON
      *tokens; /* an object: bos_token, eos_token ... of the tokenizer, which are no user's words */
  bool add_generation_prompt; /* the text ends where an answer begins */
  /* The text ends with the last message's, so that an answer goes on with it. Not with the one before. */
  bool continue_final_message;
  int64_t now; /* seconds since 1970, for strftime_now; 0: the clock's */
} ZtChat;
typedef struct {
  ZbText text;   /* UTF-8 */
  ZtSpan *given; /* what came from the conversation */
  size_t ngiven;
  ZtSpan *generated; /* what stood between {% generation %} and {% endgeneration %} */
  size_t ngenerated;
} ZtRendered;
/* Renders a conversation. Contents may be texts, lists of parts of type "text", null or absent;
 * arguments of tool calls may be JSON in a text, as clients send them, and the template sees the object.
 * False with a message: a message of another form, by its number; what the template itself raises, in
 * its words; a mistake of the template, by its line. *out is empty then. */
bool zt_template_apply(const ZtTemplate *t, const ZtChat *chat, ZtRendered *out, ZbErr *err);
void zt_rendered_free(ZtRendered *r); /* zeroed is allowed */
/* Appends a conversation's ids: special tokens are found in the template's own words only, and nothing
 * is added before or behind, since the template has it. Tokens that the template spells and that are not
 * special (<think>, <tool_call>) are found in its own words and the assistant's. `cuts` may be NULL. */
bool zt_template_encode(const ZtTemplate *t, ZtCoder *c, const ZtRendered *r, ZtCuts *cuts, ZtIds *out,
                        ZbErr *err);
/* Says if the template's text depends on a variable, such as "tools" or "enable_thinking". */
bool zt_template_reads(const ZtTemplate *t, const char *variable);

/* ---- chats.c: the templates of a folder ---------------------------------------------------------- */
/* It does not change once it is open: all threads share it. */
typedef struct {
  const char *name;     /* of the file that its template is of */
  ZtTemplate *usual;    /* NULL: there is none, or it cannot be used, and `why` */
  ZtTemplate *tools;    /* for conversations with tools; NULL: the usual one */
  struct cJSON *tokens; /* special tokens by what templates call them: bos_token */
  ZbErr why;
} ZtChats;
/* Reads a JSON object of a folder, by its name there: zb_json_file, or who knows other folders. */
typedef bool ZtFolderJson(ZbArena *a, const char *folder, const char *name, struct cJSON **out, ZbErr *err);
/* Opens the template of a folder: chat_template.jinja, else `chat_template` of tokenizer_config.json; or `file`, where
 * one is given. Either may be NULL. True, too, where there is none; false with a message if it cannot be read, or used,
 * and it is then closed. */
bool zt_chats_open(ZtChats *c, ZbArena *a, const char *folder, const char *file, ZtFolderJson *read,
                   ZbErr *err);
void zt_chats_close(ZtChats *c);
/* Returns the one for conversations with these tools, NULL or a list. */
const ZtTemplate *zt_chats_template(const ZtChats *c, const struct cJSON *tools);

/* ---- learned.c: what a conversation teaches -------------------------------------------------------- */
typedef enum { ZT_LEARN_ASSISTANT, ZT_LEARN_LAST, ZT_LEARN_ALL } ZtLearn;
typedef struct {
  ZtLearn what; /* what the assistant says, only its last message, or everything */
  int from;     /* no message before this one is learned; of ALL it is */
} ZtLearning;
/* Appends the ids of a conversation, and to *learned a byte for each: 1 where it is learned, else 0. An answer is learned
 * with the token that ends it, and without what the template writes before it. Answers are what stands in {% generation %}
 * blocks; without, each is found by rendering the conversation up to it and behind it. False with a message: as
 * zt_template_apply; there is no answer; or where one begins and ends cannot be told. */
bool zt_template_learn(const ZtTemplate *t, ZtCoder *c, const ZtChat *chat, const ZtLearning *how, ZtIds *out,
                       ZbText *learned, ZbErr *err);

#endif
