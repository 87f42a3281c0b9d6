/* config.json of an export. */
#include "runtime/exec/hub/hub.h"
#include "tests/unit/exec/foreign_files.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

SCRATCH_SUITE(config);

static ZbErr err;

Test(config, what_is_in_it) {
  ZgGraph *g = foreign_graph(a);
  char *text = zx_config(g, "hf", ZK_F32, NULL,
                         "{\"z\":[1.0,{\"k\\\"1\":-2E5,\"n\":null}],\"rope\":3,\"a\":{},\"t\":true,\"e\":[]}",
                         "c", &err);
  cr_assert(text, "%s", err.text);
  cr_expect_str_eq(
      text, "{\n  \"a\": {},\n  \"architectures\": [\n    \"A\",\n    \"B\"\n  ],\n  \"dtype\": "
            "\"float32\",\n  \"e\": [],\n  \"rope\": {\n    \"theta\": 1e-05\n  },\n  \"t\": true,\n  "
            "\"torch_dtype\": \"float32\",\n  \"vocab_size\": 300,\n  \"z\": [\n    1.0,\n    {\n      "
            "\"k\\\"1\": -2E5,\n      \"n\": null\n    }\n  ]\n}\n");
  free(text);
  text = zx_config(g, "hf", ZK_F16, NULL, "{\"rope\":{\"type\":\"x\",\"theta\":5},\"architectures\":[]}", "c",
                   &err);
  cr_expect_str_eq(text,
                   "{\n  \"architectures\": [\n    \"A\",\n    \"B\"\n  ],\n  \"dtype\": \"float16\",\n  "
                   "\"rope\": {\n    \"theta\": 1e-05,\n    \"type\": \"x\"\n  },\n  \"torch_dtype\": "
                   "\"float16\",\n  \"vocab_size\": 300\n}\n");
  free(text);
  g->nconfig = 1; /* numbers in keys and in texts are none */
  text = zx_config(g, "hf", ZK_F32, NULL, "{\"a9\":\"7 6\",\"b\":1.50,\"c\":[\"-5\",2e0]}", "c", &err);
  cr_expect_str_eq(
      text, "{\n  \"a9\": \"7 6\",\n  \"b\": 1.50,\n  \"c\": [\n    \"-5\",\n    2e0\n  ],\n  \"dtype\": "
            "\"float32\",\n  \"torch_dtype\": \"float32\",\n  \"vocab_size\": 300\n}\n");
  free(text);
  err = (ZbErr){0};
  cr_expect(!zx_config(g, "hf", ZK_F32, NULL, "[1]", "like/config.json", &err));
  says(err, "like/config.json is not a JSON object");
  cr_expect(!zx_config(g, "hf", ZK_F32, NULL, "{\"a\":NaN}", "like/config.json", &err));
  g->nconfig = 0;
  err = (ZbErr){0};
  cr_expect(!zx_config(g, "hf", ZK_F32, NULL, NULL, NULL, &err) && !*err.text);
  g->nconfig = 3; /* the last of which is another map's, and no JSON */
  g->config[2].map = "gguf", g->config[2].value = "[";
  text = zx_config(g, "hf", ZK_F32, NULL, NULL, NULL, &err);
  cr_expect(text && !strstr(text, "architectures"));
  free(text);
  cr_expect(!zx_config(g, "gguf", ZK_F32, NULL, NULL, NULL, &err));
  says(err, "model M: the value of `architectures` in config.json is not JSON");
  cr_expect_str_eq(err.help, "compile the graph again");
  cr_expect(!zx_config(g, "mlx", ZK_F32, NULL, NULL, NULL, &err));
}

/* Numbers stay as they are written, whatever keys and texts are around them. */
Test(config, numbers) {
  static const char *const numbers[] =
      {"0", "-0", "1.00", "10000.0", "-1.5E-07", "2e+3", "123456789012345678901234567890"},
                           *const around[] = {"{\"k\":%s}",
                                              "{ \"k\" : [ \"8\" , %s , 9.0 ] }",
                                              "{\"a\\\\\":\"\\\\\",\"k\":%s}",
                                              "{\"a\\\"7\":\"\\\"6\\\\\\\"5\",\"k\":[%s,\"4\",{\"3\":2}]}",
                                              "{\"a\":[],\"b\":{},\"c\":null,\"\":\"\",\"k\":{\"1\":%s}}",
                                              "{\"1\":[[7,[\"\\u00222\",-3.0]]],\"k\":[true,%s]}"};
  ZgGraph *g = foreign_graph(a);
  char in[200], want[64];
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    for (size_t k = 0; k < sizeof around / sizeof *around; k++) {
      snprintf(in, sizeof in, around[k], numbers[i]);
      char *text = zx_config(g, "hf", ZK_F32, NULL, in, "c", &err);
      cr_assert(text, "%s: %s", in, err.text);
      snprintf(want, sizeof want, " %s", numbers[i]);
      const char *at = strstr(text, want);
      while (at && at[strlen(want)] != ',' && at[strlen(want)] != '\n') at = strstr(at + 1, want);
      cr_expect(at, "%s became %s", in, text);
      free(text);
    }
}

/* What the graph says of numbers and lists, beside a folder's own. */
Test(config, values_of_the_graph) {
  static const struct {
    const char *value, *like, *want;
  } cases[] = {{"30", NULL, "30"},
               {"30", "30.0", "30.0"}, /* who reads it may know that it is a float */
               {"30", "3e1", "3e1"},
               {"30", "31.0", "30"},
               {"30", "null", "30"},
               {"30.0", "30", "30"},
               {"null", "30.0", "null"},
               {"1e999", NULL, "1e999"},
               {"[1,\"b\"]*3", NULL, "[\n    1,\n    \"b\",\n    1\n  ]"},
               {"[1,2]*1", "[]", "[\n    1\n  ]"},
               {"[1]*0", NULL, "[]"}};
  ZgGraph *g = foreign_graph(a);
  g->nconfig = 1;
  g->config[0].key = "k";
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    g->config[0].value = cases[i].value;
    const char *like = cases[i].like ? zb_printf(a, "{\"k\":%s}", cases[i].like) : NULL;
    char *text = zx_config(g, "hf", ZK_F32, NULL, like, "c", &err);
    cr_assert(text, "%s: %s", cases[i].value, err.text);
    const char *want = zb_printf(a, "\"k\": %s,", cases[i].want),
               *old = zb_printf(a, "\"k\": %s\n", cases[i].want);
    cr_expect(strstr(text, want) || strstr(text, old), "%s like %s became %s", cases[i].value, cases[i].like,
              text);
    free(text);
  }
}

Test(config, what_is_not_finite) {
  ZgGraph *g = foreign_graph(a);
  cr_expect(
      !zx_config(g, "hf", ZK_F32, NULL, "{\"a\": \"NaN\\\"\",\n\"b\": [0,\n Infinity]}", "c.json", &err));
  says(err, "c.json:3: Infinity is not a number of JSON");
  err = (ZbErr){0};
  cr_expect(!zx_config(g, "hf", ZK_F32, NULL, "{\"a\": tru}", "c.json", &err));
  says(err, "c.json as a config: it is not JSON");
}
