/* JSON from files: what is refused, how much memory forged ones may take, and that memory which ends is not
 * taken for a text that is wrong. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

#include <cjson/cJSON.h>

static bool good(const char *text, size_t n) {
  ZbErr err = {0};
  cJSON *x = zb_json_parse(text, n, ZB_JSON_ANY, &err);
  cr_expect((x != NULL) == !*err.text, "%.*s: %s", (int)n, text, err.text);
  cJSON_Delete(x);
  return x;
}
#define GOOD(literal) good(literal, sizeof literal - 1)

Test(json_read, the_whole_text_is_one_value) {
  cr_expect(GOOD("{\"a\":[1,2]} \n") && GOOD("[]") && GOOD(" \"a,b\"") && GOOD("7"));
  cr_expect(!GOOD("") && !GOOD("{") && !GOOD("{} x") && !GOOD("[1,]") && !GOOD("{}\0"));
  cr_expect(!GOOD("[\"a\0b\"]"), "a NUL would end the text early");
  cr_expect(!good("[1,2]", 3), "what stands behind the text is not read");
}

/* A text of `n` bytes with `every` bytes per value. */
static char *list(size_t n, size_t every) {
  char *s = malloc(n);
  memset(s, '1', n);
  for (size_t i = every - 1; i + 1 < n; i += every) s[i] = ',';
  s[0] = '[', s[n - 1] = ']';
  return s;
}

Test(json_read, values_are_limited_before_memory_is_taken) {
  enum { N = 1 << 20 };
  ZbErr err = {0};
  char *dense = list(N, 3), *sparse = list(N, 8);
  cr_expect(!zb_json_parse(dense, N, ZB_JSON_NAMED, &err) && strstr(err.text, "values"), "%s", err.text);
  cJSON *x = zb_json_parse(sparse, N, ZB_JSON_NAMED, &err);
  cr_expect(x, "%s", err.text);
  cJSON_Delete(x);
  memset(dense + 1, '"', 1), memset(dense + N - 2, '"', 1); /* commas in a string are not values */
  x = zb_json_parse(dense, N, ZB_JSON_NAMED, &err);
  cr_expect(x, "%s", err.text);
  cJSON_Delete(x);
  free(dense);
  free(sparse);
}

/* The program ends with the code of what passes. */
Test(json_read, memory_that_ends) {
#if defined __SANITIZE_ADDRESS__
  cr_skip_test("a sanitizer needs the address space that this test takes away");
#endif
  enum { N = 32 << 20 };
  char *s = list(N, 8);
  pid_t child = fork();
  if (!child) {
    if (!freopen("/dev/null", "w", stderr)) _exit(3);
    struct rlimit most = {N, N};
    setrlimit(RLIMIT_AS, &most);
    _exit(zb_json_parse(s, N, ZB_JSON_ANY, NULL) ? 4 : 2);
  }
  int status;
  cr_assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
  cr_expect_eq(WEXITSTATUS(status), 1);
  free(s);
}
