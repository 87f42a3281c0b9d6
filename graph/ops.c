/* What ops.def says, as a table. See ops.h. */
#include "graph/ops.h"

const ZgOpInfo zg_op_info[ZG_OP_COUNT] = {
#define OP(NAME, text, kind, lo, hi, outs) [ZG_OP_##NAME] = {text, ZG_##kind, lo, hi, outs},
#include "graph/ops.def"
};
