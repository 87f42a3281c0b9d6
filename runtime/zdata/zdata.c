/* zdata: makes and shows token and record files: its commands and their options. */
#include "runtime/zdata/zdata.h"

#include <stdlib.h>

static bool take_split(void *options, const char *text, ZbErr *err) {
  (void)err;
  char *end;
  double x = strtod(text, &end);
  ((ZdOptions *)options)->split = x;
  return *text && !*end && x > 0 && x < 1;
}

enum { PACK, IMPORT, TOKENIZER, RECORDS, TABLE, SHOW, DECODE, CHECK };
/* clang-format off */
static const ZbCommand commands[] = {
  [PACK] = {"pack", "PATH...", 1, ZB_ANY_NUMBER,
   "tokenize texts. A .jsonl file has one document per line; .gz and .zst are decompressed; folders are "
   "walked in the order of names, without hidden files, links and files that are not text"},
  [IMPORT] = {"import", "FILE...", 1, ZB_ANY_NUMBER,
   "convert tokens of other programs: Megatron's NAME.idx with NAME.bin, llm.c's .bin, bare u16"},
  [TOKENIZER] = {"tokenizer", "PATH...", 1, ZB_ANY_NUMBER,
   "train a byte-level BPE tokenizer on texts, read as by pack: OUT is a tokenizer.json"},
  [RECORDS] = {"records", "FILE...", 1, ZB_ANY_NUMBER, "take fixed-size records as they are"},
  [TABLE] = {"table", "FILE.csv", 1, 1, "make a record of each row: numbers, and a class"},
  [SHOW] = {"show", "OUT", 1, 1, "what is in a file, and how it begins"},
  [DECODE] = {"decode", "OUT", 1, 1, "the text of a file"},
  [CHECK] = {"check", "OUT", 1, 1, "read everything and compare checksums"},
};
#define FIELD(f) ZB_AT(ZdOptions, f)
#define ON(command) .commands = 1 << command
enum { MAKES = 1 << PACK | 1 << IMPORT | 1 << TOKENIZER | 1 << RECORDS | 1 << TABLE, TEXTS = 1 << PACK | 1 << TOKENIZER };
static const ZbOption options[] = {
  {"output", 'o', ZB_TEXT, FIELD(out), "OUT", .commands = MAKES, .needed = MAKES,
   .help = "the file to write. An existing file is replaced only if it is of the same kind, when the new one "
           "is complete"},

  {"tokenizer", 0, ZB_TEXT, FIELD(tokenizer), "FILE", ON(PACK) | 1 << DECODE,
   .help = "tokenizer.json, or the folder that it is in (default: a token per byte)"},

  {"tokens", 0, ZB_WORD, FIELD(tokens), "u16|u32", ON(PACK), .least = ZD_TOKENS_U16,
   .help = "PATHs are files of little-endian ids, taken as they are; the largest value means \"unknown\""},
  {"threads", 0, ZB_WHOLE, FIELD(threads), "N", ON(PACK), .least = 1, .most = ZD_THREADS,
   .help = "number of threads (default: all cores); the result is the same with any"},
  {"special-as-text", 0, ZB_FLAG, FIELD(special_as_text), ON(PACK),
   .help = "text that spells a special token is not that token"},
  {"apart", 0, ZB_FLAG, FIELD(apart), ON(PACK),
   .help = "the last token of a document is not asked for the first of the next"},
  {"end", 0, ZB_TEXT, FIELD(end), "TOKEN", ON(PACK),
   .help = "token after every document: its text, its id, or none (default: the tokenizer's own, such as "
           "<|endoftext|> or </s>; for bytes none)"},

  {"field", 0, ZB_TEXT, FIELD(field), "NAME", .commands = TEXTS,
   .help = "field of JSON lines that has the text (default text)"},
  {"jsonl", 0, ZB_FLAG, FIELD(jsonl), .commands = TEXTS,
   .help = "all inputs are JSON lines, whatever their names"},
  {"skip-bad", 0, ZB_FLAG, FIELD(skip_bad), .commands = TEXTS,
   .help = "count lines without a text, and leave them out"},

  {"chat", 0, ZB_FLAG, FIELD(chat), ON(PACK),
   .help = "PATHs are conversations: JSON lines or lists with `messages`, `conversations`, `prompt` and "
           "`completion`, or `text`; rendered by the chat template beside the tokenizer"},
  {"loss", 0, ZB_WORD, FIELD(loss), "assistant|last|all", ON(PACK),
   .help = "with --chat: what is learned: all that the assistant says (default), its last answer, or all tokens"},
  {"windows", 0, ZB_WORD, FIELD(windows), "fit|each|pairs", ON(PACK),
   .help = "with --chat: a window has as many conversations as fit (default), where the model keeps them apart, or one each; "
           "or it is a pair, of lines with `chosen` and `rejected`"},
  {"seq", 0, ZB_WHOLE, FIELD(seq), "N", ON(PACK), .least = 1, .most = INT32_MAX,
   .help = "with --chat: conversations of more than N tokens are bad; the share of padding in windows of N is printed"},
  {"fields", 0, ZB_TEXT, FIELD(names), "NAME=FIELD[+FIELD],..", ON(PACK),
   .help = "with --chat: fields of other names, such as prompt=instruction+input,completion=output"},
  {"chat-template", 0, ZB_TEXT, FIELD(template), "FILE", ON(PACK),
   .help = "with --chat: the template (default: the one beside the tokenizer)"},

  {"split", 0, ZB_OTHER, FIELD(split), "R", ON(PACK) | 1 << IMPORT, .take = take_split,
   .expects = "give the share for training, such as 0.99",
   .help = "a share R of the documents, 0.99 say, goes into OUT with .train before its ending, the rest into "
           "OUT with .valid"},
  {"seed", 0, ZB_WHOLE, FIELD(seed), "N", ON(PACK) | 1 << IMPORT, .help = "seed of --split"},
  {"shard-size", 0, ZB_SIZE, FIELD(shard_size), "S", ON(PACK) | 1 << IMPORT, .least = 1000,
   .help = "OUT is a folder of files of about S bytes, 10G say; zrun takes it as one file"},
  {"vocab", 0, ZB_WHOLE, FIELD(vocab), "N", ON(PACK) | 1 << IMPORT, .least = 1,
   .help = "ids must be below N; pack: with --tokens"},

  {"format", 0, ZB_WORD, FIELD(format), "megatron|llmc|nanogpt", ON(IMPORT), .least = ZD_MEGATRON,
   .help = "format of the files (default: megatron or llmc, by their first bytes; nanogpt is bare u16)"},
  {"start", 0, ZB_WHOLE, FIELD(start_id), "ID", ON(IMPORT), .most = UINT32_MAX - 1,
   .help = "token that begins every document"},
  {"end", 0, ZB_WHOLE, FIELD(end_id), "ID", ON(IMPORT), .most = UINT32_MAX - 1,
   .help = "token that ends every document; Megatron's index and llm.c's header tell where documents begin"},

  {"end", 0, ZB_TEXT, FIELD(end), "TOKEN", ON(TOKENIZER),
   .help = "the last token, a special one, or none (default: <|endoftext|>)"},
  {"vocab", 0, ZB_WHOLE, FIELD(vocab), "N", ON(TOKENIZER), .needed = 1 << TOKENIZER, .least = 1,
   .most = UINT32_MAX, .help = "number of tokens"},

  {"field", 0, ZB_TEXTS, FIELD(fields), "NAME:TYPE:VALUES", ON(RECORDS), .needed = 1 << RECORDS,
   .help = "a field, once for each, in this order; TYPE: u8, u16, u32, i32, f32"},

  {"label", 0, ZB_TEXT, FIELD(label), "COLUMN", ON(TABLE), .needed = 1 << TABLE,
   .help = "column of the class: its name, or its number from 1"},
  {"field", 0, ZB_TEXT, FIELD(field), "NAME", ON(TABLE),
   .help = "name of the field of numbers (default features)"},
  {"label-field", 0, ZB_TEXT, FIELD(label_field), "NAME", ON(TABLE),
   .help = "name of the field of classes (default: that of the column)"},

  {"from", 0, ZB_WHOLE, FIELD(from), "N", ON(DECODE), .help = "begin at token N, from 0"},
  {"count", 0, ZB_WHOLE, FIELD(count), "M", ON(DECODE), .help = "M tokens (default: all)"},
  {"document", 0, ZB_WHOLE, FIELD(document), "I", ON(DECODE), .help = "document I, from 0"},
  {"show-mask", 0, ZB_FLAG, FIELD(show_mask), ON(DECODE),
   .help = "of conversations: what is learned is in colour on a terminal, else between [[ and ]]"},
};
static const ZbNote codes[] = {
  {"0", "done"},
  {"2", "an error"},
  {NULL, NULL},
};
static const ZbNote examples[] = {
  {"zdata pack *.txt -o corpus.bin", "a token a byte"},
  {"zdata pack corpus.jsonl -o corpus.bin --tokenizer tokenizer.json", "by the tokenizer of a Hugging Face folder"},
  {"zdata pack --chat --tokenizer DIR chats.jsonl -o chats.bin", "conversations, by the chat template of a model's folder"},
  {"zdata show corpus.bin", "how many tokens and documents"},
  {"zdata decode corpus.bin --count 100", "its first tokens as text"},
  {NULL, NULL},
};
static const ZbNote files[] = {
  {"*.bin", "tokens or records, for zrun --data"},
  {"*.jsonl, *.jsonl.gz, *.jsonl.zst", "texts, a document a line"},
  {"tokenizer.json", "a byte-level BPE tokenizer"},
  {NULL, NULL},
};
static const ZbProgram program = {
  .name = "zdata", .what = "make and inspect the files that zrun trains from",
  ZB_TABLES(commands, options), .once = true,
  .notes = "Inputs are regular files; pack and records also take a pipe with a writer, such as /dev/stdin.",
  .codes = codes, .examples = examples, .files = files,
};
/* clang-format on */
static bool (*const run[])(const ZdOptions *, ZbArena *, ZbErr *) = {
    [PACK] = zd_pack,   [IMPORT] = zd_import, [TOKENIZER] = zd_tokenizer, [RECORDS] = zd_records,
    [TABLE] = zd_table, [SHOW] = zd_show,     [DECODE] = zd_decode,       [CHECK] = zd_check};

static int run_command(void *options, const ZbArgs *args, ZbArena *a, ZbErr *err) {
  ZdOptions *o = options;
  o->file = args->operand;
  o->nfile = (int)args->noperands;
  return run[args->command](o, a, err) ? 0 : 2;
}

int main(int argc, char **argv) {
  return zb_main(&program, argc, argv, &(ZdOptions){ZD_NOT_GIVEN}, run_command);
}
