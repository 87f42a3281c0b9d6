/* calls: tools that a model calls in its answer. Pure: text in, calls and the text around them out. */
#ifndef ZUG_EXEC_SERVE_CALLS_H
#define ZUG_EXEC_SERVE_CALLS_H

#include "base/base.h"

/* Forms that are known:
 *
 *   Hermes, Qwen ..   text <tool_call>{"name": "f", "arguments": {..}}</tool_call> <tool_call>..
 *   Llama 3           <|python_tag|>{"name": "f", "parameters": {..}}; {..}      at the beginning, or without the mark
 *
 * A call ends with its JSON, whatever markers its texts have. What is no JSON of a call stays text. */
enum { ZX_CALLS = 64 /* of an answer, at most */ };
typedef struct {
  size_t name, nname;           /* the bytes between the quotes, without escapes */
  size_t arguments, narguments; /* an object */
} ZxCall;
typedef struct {
  ZbText content; /* what is not of a call; blanks around calls are not of it */
  ZxCall call[ZX_CALLS];
  uint32_t ncalls;
} ZxCalls;
/* Reads an answer, text[0..n). `whole`: no more comes; else what more could still change is left out, so that
 * contents and calls of a longer answer begin with these. Further calls than `most` are text; where that is 1, nothing
 * comes behind the first. out->content is the caller's to free. */
void zx_calls_read(const char *text, size_t n, bool whole, uint32_t most, ZxCalls *out);

#endif
