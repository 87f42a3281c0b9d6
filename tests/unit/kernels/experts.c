/* Rows of experts: what slots there are, and rows there and back. */
#include "tests/unit/kernels/conform.h"

/* Ids are no expert's if negative or too large. */
Test(experts, slots) {
  double few[] = {2, 0, 1, 1, -1, 3, 0, 2, 5, 2};
  CONFORM(.op = ZG_OP_SLOTS, .dims = "t=5 c=2 e=4 s=1", .ax = "esc", .in = {{"tc", ID, 0, 0, few}},
          .out = {{"tc", ID}, {"e", ID}});
  CONFORM(.op = ZG_OP_SLOTS, .dims = "t=333 c=3 e=7 s=1", .ax = "esc", .in = {{"tc", ID, 0, 6}},
          .out = {{"tc", ID}, {"e", ID}});
  CONFORM(.op = ZG_OP_SLOTS, .dims = "t=70 c=1 e=2 s=1", .ax = "esc", .in = {{"tc", ID, 1, 2}},
          .out = {{"tc", ID}, {"e", ID}});
}

Test(experts, round) {
  double ends[] = {0, 5, 5, 17, 30};
  for (int round = 0; round < 4; round++)
    CONFORM(.op = ZG_OP_ROUND, .dims = "e=5 s=2", .ax = "es", .in = {{"e", ID, 0, 0, ends}},
            .out = {{"e", ID}}, .opt = {round, 10});
}

/* Twelve rows of six tokens with two choices each, eight rows a round: all of the first, half of the second. */
static double place[] = {3, 9, 0, 11, 7, 1, 2, 10, 8, 4, 5, 6}, full[] = {2, 5, 5, 8}, half[] = {0, 0, 2, 4};
static double lost[] = {3, -1, 0, -1, -1, 1, 2, -1, -1, -1, -1, -1}, four[] = {1, 2, 4, 4};

Test(experts, dispatch) {
  for (int i = 0; i < 3; i++) {
    double *at = i < 2 ? place : lost, *now = i == 0 ? full : i == 1 ? half : four;
    int64_t first = i == 1 ? 8 : 0;
    CONFORM(.op = ZG_OP_DISPATCH, .dims = "b=2 t=3 c=2 e=4 s=2 d=19", .ax = "esc", .opt = {0, first},
            .in = {{"btd"}, {"btc", ID, 0, 0, at}, {"e", ID, 0, 0, now}}, .out = {{"esd"}});
    CONFORM(.op = ZG_OP_DISPATCH, .dims = "b=2 t=3 c=2 e=4 s=2 h=3 d=700", .ax = "esc", .opt = {0, first},
            .in = {{"bthd"}, {"btc", ID, 0, 0, at}, {"e", ID, 0, 0, now}}, .out = {{"eshd"}});
    CONFORM(.op = ZG_OP_DISPATCH, .dims = "b=2 t=3 c=2 e=4 s=2", .ax = "esc", .opt = {0, first},
            .in = {{"btc"}, {"btc", ID, 0, 0, at}, {"e", ID, 0, 0, now}}, .out = {{"es"}});
  }
}

Test(experts, combine) {
  for (int add = 0; add < 2; add++)
    for (int i = 0; i < 3; i++) {
      double *at = i < 2 ? place : lost, *now = i == 0 ? full : i == 1 ? half : four;
      int64_t first = i == 1 ? 8 : 0;
      CONFORM(.op = ZG_OP_COMBINE, .dims = "b=2 t=3 c=2 e=4 s=2 d=19", .ax = "esc", .opt = {0, first},
              .in = {{"esd"}, {"btc", ID, 0, 0, at}, {"e", ID, 0, 0, now}}, .out = {{"btd", EXACT}},
              .accumulate = add, .tol = 2e-7);
      CONFORM(.op = ZG_OP_COMBINE, .dims = "b=2 t=3 c=2 e=4 s=2 h=3 d=700", .ax = "esc", .opt = {0, first},
              .in = {{"eshd"}, {"btc", ID, 0, 0, at}, {"e", ID, 0, 0, now}}, .out = {{"bthd", EXACT}},
              .accumulate = add, .tol = 2e-7);
      /* each row by itself: nothing else is added to it, so what earlier rounds left stays */
      if (!add)
        CONFORM(.op = ZG_OP_COMBINE, .dims = "b=2 t=3 c=2 e=4 s=2 d=19", .ax = "esc", .opt = {1, first},
                .in = {{"esd"}, {"btc", ID, 0, 0, at}, {"e", ID, 0, 0, now}}, .out = {{"btcd", EXACT}});
    }
}
