/* Ops that move elements: exact. */
#include "tests/unit/kernels/conform.h"

Test(move, copy) {
  CONFORM(.op = ZG_OP_COPY, .dims = "", .in = {{""}}, .out = {{""}});
  CONFORM(.op = ZG_OP_COPY, .dims = "a=1 b=1", .in = {{"ab"}}, .out = {{"ba"}});
  CONFORM(.op = ZG_OP_COPY, .dims = "a=3 b=17 c=5", .in = {{"abc"}}, .out = {{"cab"}});
  CONFORM(.op = ZG_OP_COPY, .dims = "a=33 b=65", .in = {{"ab"}}, .out = {{"ba"}});
  CONFORM(.op = ZG_OP_COPY, .dims = "a=3 b=4 c=5 d=2 e=3 f=2 g=1 h=3", .in = {{"abcdefgh"}},
          .out = {{"hbgdcfae"}});
  CONFORM(.op = ZG_OP_COPY, .dims = "a=3 b=2049", .in = {{"ab"}}, .out = {{"ab"}});
  CONFORM(.op = ZG_OP_COPY, .dims = "a=5 b=3 c=16", .in = {{"abc"}}, .out = {{"bac"}}); /* whole vectors */
  CONFORM(.op = ZG_OP_COPY, .dims = "a=40 b=9 c=3", .in = {{"cab"}}, .out = {{"bca"}});
  CONFORM(.op = ZG_OP_COPY, .dims = "a=5 b=33", .in = {{"ab", ID, -1, 1000000}}, .out = {{"ba", ID}});
}

Test(move, rename) {
  CONFORM(.op = ZG_OP_RENAME, .dims = "a=17 b=3 c=5 t=3", .ax = "bt", .in = {{"abc"}}, .out = {{"atc"}});
  CONFORM(.op = ZG_OP_RENAME, .dims = "a=1 t=1", .ax = "at", .in = {{"a"}}, .out = {{"t"}});
  CONFORM(.op = ZG_OP_RENAME, .dims = "a=5 b=3 t=5", .ax = "at", .in = {{"ab", ID, -1, 9}},
          .out = {{"tb", ID}});
}

Test(move, slice) {
  CONFORM(.op = ZG_OP_SLICE, .dims = "a=3 b=17 t=5", .ax = "bt", .opt = {0, 5}, .in = {{"ab"}},
          .out = {{"at"}});
  CONFORM(.op = ZG_OP_SLICE, .dims = "a=3 b=17 c=9 t=1", .ax = "bt", .opt = {16, 1}, .in = {{"abc"}},
          .out = {{"atc"}});
  CONFORM(.op = ZG_OP_SLICE, .dims = "a=33 b=64 t=63", .ax = "bt", .opt = {1, 63}, .in = {{"ab"}},
          .out = {{"at"}});
  CONFORM(.op = ZG_OP_SLICE, .dims = "a=5 b=33 t=7", .ax = "bt", .opt = {20, 7},
          .in = {{"ab", ID, -1, 1000000}}, .out = {{"ta", ID}});
}

Test(move, pad) {
  CONFORM(.op = ZG_OP_PAD, .dims = "a=3 b=5 t=17", .ax = "bt", .opt = {0}, .in = {{"ab"}}, .out = {{"at"}});
  CONFORM(.op = ZG_OP_PAD, .dims = "a=3 b=5 c=7 t=17", .ax = "bt", .opt = {12}, .in = {{"abc"}},
          .out = {{"atc"}});
  CONFORM(.op = ZG_OP_PAD, .dims = "a=3 b=16 t=48", .ax = "bt", .opt = {16}, .in = {{"ab"}}, .out = {{"at"}});
  CONFORM(.op = ZG_OP_PAD, .dims = "a=33 b=1 t=64", .ax = "bt", .opt = {30}, .in = {{"ba"}}, .out = {{"ta"}});
}

Test(move, shift) {
  static const int by[] = {0, 1, -1, 4, -5, 33, -33, 40, -1000000};
  for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
    CONFORM(.op = ZG_OP_SHIFT, .dims = "a=3 s=33 e=16", .ax = "s", .opt = {by[i]}, .in = {{"ase"}},
            .out = {{"ase"}});
    CONFORM(.op = ZG_OP_SHIFT, .dims = "a=5 s=32", .ax = "s", .opt = {by[i]}, .in = {{"as"}},
            .out = {{"as"}});
    CONFORM(.op = ZG_OP_SHIFT, .dims = "a=5 s=33", .ax = "s", .opt = {by[i]}, .num = {-1},
            .in = {{"as", ID, 0, 1000000}}, .out = {{"as", ID}});
    CONFORM(.op = ZG_OP_SHIFT, .dims = "a=5 s=32", .ax = "s", .opt = {by[i]}, .in = {{"as", ID, 0, 1000000}},
            .out = {{"as", ID}});
  }
}

Test(move, concat) {
  CONFORM(.op = ZG_OP_CONCAT, .dims = "a=3 b=5 c=7 t=12", .ax = "tbc", .in = {{"ab"}, {"ac"}},
          .out = {{"at"}});
  CONFORM(.op = ZG_OP_CONCAT, .dims = "a=3 b=1 c=64 d=33 e=5 t=98", .ax = "tbcd",
          .in = {{"abe"}, {"ace"}, {"ade"}}, .out = {{"ate"}});
  CONFORM(.op = ZG_OP_CONCAT, .dims = "a=2 b=3 t=24", .ax = "tbbbbbbbb",
          .in = {{"ab"}, {"ab"}, {"ab"}, {"ab"}, {"ab"}, {"ab"}, {"ab"}, {"ab"}}, .out = {{"at"}});
  CONFORM(.op = ZG_OP_CONCAT, .dims = "a=3 b=5 c=33 t=38", .ax = "tbc",
          .in = {{"ab", ID, -1, 9}, {"ca", ID, 10, 1000000}}, .out = {{"at", ID}});
}

/* The first part is the slowest, wherever the axes lie in memory. */
Test(move, merge_and_part) {
  CONFORM(.op = ZG_OP_MERGE, .dims = "a=3 b=5 c=7 t=15", .ax = "tab", .in = {{"abc"}}, .out = {{"tc"}});
  CONFORM(.op = ZG_OP_MERGE, .dims = "a=3 b=5 c=7 t=15", .ax = "tba", .in = {{"cab"}}, .out = {{"ct"}});
  CONFORM(.op = ZG_OP_MERGE, .dims = "a=2 b=33 c=3 d=4 t=24", .ax = "tdac", .in = {{"acbd"}},
          .out = {{"bt"}});
  CONFORM(.op = ZG_OP_MERGE, .dims = "a=1 b=1 t=1", .ax = "tab", .in = {{"ab"}}, .out = {{"t"}});
  CONFORM(.op = ZG_OP_PART, .dims = "a=3 b=5 c=7 t=15", .ax = "abt", .in = {{"tc"}}, .out = {{"abc"}});
  CONFORM(.op = ZG_OP_PART, .dims = "a=3 b=65 c=40 t=195", .ax = "bat", .in = {{"ct"}}, .out = {{"acb"}});
  CONFORM(.op = ZG_OP_PART, .dims = "a=2 b=3 c=2 d=2 e=3 f=2 g=2 h=2 t=576", .ax = "hgfedcbat", .in = {{"t"}},
          .out = {{"abcdefgh"}});
  CONFORM(.op = ZG_OP_PART, .dims = "a=5 b=3 t=15", .ax = "abt", .in = {{"t", ID, -1, 9}},
          .out = {{"ba", ID}});
}

/* Views of a part of something larger are not dense: rows of 8 that lie 8 and more apart, on both sides. */
Test(move, parts) {
  float *x = memory_new(400 * sizeof *x), *y = memory_new(400 * sizeof *y);
  for (int from = 8; from < 14; from++)
    for (int to = 8; to < 14; to++) {
      ZkCall call = {.op = ZG_OP_COPY, .nin = 1, .nout = 1};
      call.in[0] = (ZkView){
          .data = x, .elem = ZK_F32, .rank = 2, .axis = {1, 2}, .size = {25, 8}, .stride = {from, 1}};
      call.out[0] = call.in[0];
      call.out[0].data = y;
      call.out[0].stride[0] = to;
      for (int i = 0; i < 400; i++) x[i] = (float)i, y[i] = -1;
      run_call(&call, 0);
      for (int i = 0; i < 400; i++) {
        float want = i / to < 25 && i % to < 8 ? (float)(i / to * from + i % to) : -1;
        EACH_ASSERT(y[i] == want, "rows %d to %d apart: element %d is %g", from, to, i, (double)y[i]);
      }
    }
  memory_free(x), memory_free(y);
}
