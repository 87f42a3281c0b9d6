/* What the files of shape share: the grammar of a schema, and the automaton that reads by it.
 *
 * A rule is a small automaton: nodes, and edges that take a byte, nothing, or the text of another rule, which is
 * called and returns. It has one counter, of items or characters. The rule of a list of at least 2 numbers:
 *
 *   start -[-> open --call number, count--> next -]-> end          ] only from 2 on
 *                                           next -,-> more --call number, count--> next
 *
 * A thread is a node, its rule's counter, and a stack of the nodes to which callers return; a state is a set of
 * threads: a pushdown automaton, made deterministic as far as texts go (as llama.cpp's and XGrammar's; Dong and
 * others, "XGrammar", 2024). */
#ifndef ZUG_EXEC_SHAPE_GRAMMAR_H
#define ZUG_EXEC_SHAPE_GRAMMAR_H

#include "runtime/exec/shape/shape.h"

/* ---- grammar.c ---------------------------------------------------------------------------------------------- */
#define ZX_ENDLESS UINT32_MAX
typedef enum { ZX_BYTES, ZX_GO, ZX_CALL } ZxEdgeKind;
typedef enum { ZX_ALWAYS, ZX_FROM_MIN, ZX_BELOW_MAX } ZxGuard; /* of the counter before */
typedef struct {
  uint8_t kind, low, high, guard;
  bool counts;
  uint32_t to, rule; /* rule: that is called, and returns to `to` */
  uint32_t next;     /* of the same node; 0: the last */
} ZxEdge;
typedef struct {
  uint32_t edge, rule;
  uint8_t height; /* calls that are open at once on its lowest way to the end; ZX_SHAPE_DEPTH + 1: too many */
  bool body;      /* inside of a string: any character that is written as it is leads back here, and counts */
} ZxNode;
typedef struct {
  uint32_t start, end; /* end has no edges */
  uint32_t min, max;
} ZxRule;
typedef struct {
  ZbArena *a;
  ZxNode *node;
  ZxEdge *edge; /* from 1 on */
  ZxRule *rule; /* rule 0 is the whole */
  uint32_t nnodes, nedges, nrules;
  uint8_t class_of[256], first_of[256]; /* bytes that no edge tells apart, and the first of each class */
  uint32_t classes;
  uint64_t *needs; /* characters without which its texts cannot be written, by bits */
} ZxGrammar;
void zx_grammar_init(ZxGrammar *g, ZbArena *a);
uint32_t zx_rule(ZxGrammar *g, uint32_t min, uint32_t max);
uint32_t zx_node(ZxGrammar *g, uint32_t rule);
/* Each adds an edge, which is valid until the next one. */
ZxEdge *zx_edge_bytes(ZxGrammar *g, uint32_t from, uint8_t low, uint8_t high, uint32_t to);
ZxEdge *zx_edge_call(ZxGrammar *g, uint32_t from, uint32_t rule, uint32_t to);
void zx_edge_go(ZxGrammar *g, uint32_t from, uint32_t to);
/* Adds a path of a text's bytes and returns its last node; beginnings of texts from one node are shared. */
uint32_t zx_edge_text(ZxGrammar *g, uint32_t from, const char *s, size_t n);
/* The same to a node that there is, not shared: text of a byte at least. */
void zx_edge_text_to(ZxGrammar *g, uint32_t from, const char *s, uint32_t to);
/* Adds a blank or none, and returns the node behind it. */
uint32_t zx_blank(ZxGrammar *g, uint32_t from);
/* All is there: computes heights and classes. False: the whole has no text, or only too deep ones. */
bool zx_grammar_done(ZxGrammar *g);

/* ---- literals.c: rules of values that no schema need be read for ---------------------------------------------- */
typedef struct {
  ZxGrammar *g;
  uint32_t any, any_object, integer, number; /* rules; 0: not made yet */
  struct ZxStringRule {
    uint32_t min, max, rule;
  } * string; /* one for each pair */
  uint32_t nstrings;
} ZxLiterals;
uint32_t zx_string_rule(ZxLiterals *l, uint32_t min, uint32_t max);
uint32_t zx_integer_rule(ZxLiterals *l);
uint32_t zx_number_rule(ZxLiterals *l);
uint32_t zx_any_rule(ZxLiterals *l);
uint32_t zx_any_object_rule(ZxLiterals *l);
/* Returns the rule of a member's name that is none of n others, each in quotes as JSON writes it. */
uint32_t zx_other_name_rule(ZxLiterals *l, const char *const *quoted, uint32_t n);

/* ---- schema.c ------------------------------------------------------------------------------------------------- */
/* Reads a schema; NULL: any object. False with a message. */
bool zx_schema_read(ZxGrammar *g, const char *schema, size_t n, bool strict, ZbErr *err);

/* ---- automaton.c ------------------------------------------------------------------------------------------------ */
enum { ZX_NOWHERE, ZX_BEGINNING }; /* the first states */
typedef struct ZxAutomaton ZxAutomaton;
ZxAutomaton *zx_automaton_new(const ZxGrammar *g, uint32_t longest); /* longest: bytes of a token */
void zx_automaton_free(ZxAutomaton *m);
uint32_t zx_automaton_next(ZxAutomaton *m, uint32_t state, uint8_t byte);
bool zx_automaton_may_end(const ZxAutomaton *m, uint32_t state);
bool zx_automaton_must_end(const ZxAutomaton *m, uint32_t state);
/* Says whether the state is inside of a string that may have `longest` more characters. */
bool zx_automaton_in_text(const ZxAutomaton *m, uint32_t state);
/* Returns a state from which the same tokens may come, the same for many: its counters are what matters of them. */
uint32_t zx_automaton_alike(ZxAutomaton *m, uint32_t state);
size_t zx_automaton_bytes(const ZxAutomaton *m);
/* Forgets all states but the first two and this one, and returns its new number. */
uint32_t zx_automaton_forget(ZxAutomaton *m, uint32_t state);

/* ---- trie.c: the vocabulary, by bytes ------------------------------------------------------------------------------ */
/* Tokens in the order of their bytes: node i has a byte of a token, its children follow it, and what follows all of
 * them is node past[i]. */
typedef struct {
  uint32_t nodes;
  uint8_t *byte;
  uint16_t *depth; /* from 0 on */
  uint32_t *past;
  uint32_t *id; /* of the first token that ends here; ZT_NONE */
} ZxTrie;
typedef struct {
  ZbArena *a;
  uint32_t vocabulary, words; /* words: those of 64 ids */
  uint32_t longest;           /* bytes of a token */
  const char **text;          /* by id; NULL: it has none, and never comes */
  uint16_t *length;
  uint32_t *same; /* by id: the next of the same bytes; ZT_NONE */
  /* Tokens of whole characters that a string has as they are, and all others. */
  ZxTrie plain, other;
  uint64_t *plain_bits;
  bool all_bytes; /* every byte is a token */
} ZxVocabulary;
/* NULL with a message: texts of the tokenizer's tokens depend on each other. */
ZxVocabulary *zx_vocabulary_new(const ZtTokenizer *t, uint32_t vocabulary, ZbErr *err);
/* Says whether a text can be written that needs these characters (see ZxGrammar); else with a message which not. */
bool zx_vocabulary_writes(const ZxVocabulary *v, const uint64_t *needs, ZbErr *err);

#endif
