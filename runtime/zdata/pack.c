/* zdata pack: text, or ids that a tokenizer made, becomes one stream of tokens. */
#include "runtime/zdata/zdata.h"

bool zd_pack(const ZdOptions *o, ZbArena *a, ZbErr *err) {
  ZxDataField tokens = {.name = "tokens", .elem = ZX_DATA_U8, .values = 1};
  ZxDataInfo info = {.stream = true, .nfield = 1, .field = &tokens};
  ZdFiles fs = {.a = a};
  uint64_t vocab = 0;
  if (o->tokens) {
    tokens.elem = zx_data_elem_of(o->tokens);
    if (tokens.elem != ZX_DATA_U16 && tokens.elem != ZX_DATA_U32)
      return zb_fail(err, "--tokens u16 or --tokens u32", "--tokens cannot be '%s'", zb_show(o->tokens));
  }
  if (o->vocab && !o->tokens)
    return zb_fail(err, "leave it out", "--vocab is for --tokens; bytes have 256 ids");
  if (o->vocab && !zd_whole(o->vocab, 1, &vocab))
    return zb_fail(err, "--vocab 50257, say", "--vocab cannot be '%s'", zb_show(o->vocab));
  return zx_data_layout(&info, err) && zd_files(&fs, o, !o->tokens, err) &&
         zd_copy(o, &fs, &info, vocab, err);
}
