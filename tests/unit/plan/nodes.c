/* The order of ranks on nodes: nodes as letters, the order as the launcher's ranks. */
#include "runtime/plan/plan.h"

#include <criterion/criterion.h>
#include <string.h>

/* A mesh of "a", "b", ... of these sizes, slowest first; 0 ends them. */
static ZpMesh mesh_of(const int64_t *size) {
  static const char *const name[] = {"a", "b", "c", "d"};
  ZpMesh m = {.pipe = -1, .nranks = 1};
  for (; size[m.ndims]; m.ndims++) {
    m.dim[m.ndims] = (ZpDim){.name = name[m.ndims], .size = size[m.ndims]};
    m.nranks *= size[m.ndims];
  }
  return m;
}

/* Ranks on these nodes become the nodes `want`, in the order of the mesh; every rank is there once, rank 0
 * first. */
static void order(const char *nodes, const char *want, int line, const int64_t *size) {
  ZbArena *a = zb_arena_new();
  ZpMesh m = mesh_of(size);
  int n = (int)m.nranks, node[64], got[64];
  char text[65] = "";
  bool seen[64] = {0};
  cr_assert_eq((int)strlen(nodes), n, "line %d: this test is wrong", line);
  for (int i = 0; i < n; i++) node[i] = nodes[i];
  bool moved = zp_order_ranks(&m, a, node, got);
  cr_assert_eq(got[0], 0, "line %d: rank 0 is moved", line);
  for (int i = 0; i < n; i++) {
    cr_assert(got[i] >= 0 && got[i] < n && !seen[got[i]], "line %d: not a permutation", line);
    seen[got[i]] = true;
    text[i] = nodes[got[i]];
    cr_assert(moved || got[i] == i, "line %d", line);
  }
  cr_expect_str_eq(text, want, "line %d: %s, wanted %s", line, text, want);
  zb_arena_free(a);
}
#define ORDER(nodes, want, ...) order(nodes, want, __LINE__, (const int64_t[]){__VA_ARGS__, 0})

Test(nodes, ranks_dealt_out_in_turn) {
  ORDER("ABAB", "AABB", 2, 2);
  ORDER("ABABABAB", "AAAABBBB", 2, 2, 2);
  ORDER("ABCDABCD", "AABBCCDD", 4, 2);
  ORDER("ABCABC", "AABBCC", 3, 2);
  ORDER("ABAB", "AABB", 4); /* a ring has fewer ways between nodes */
  ORDER("AABBAABB", "AAAABBBB", 4, 2);
  ORDER("BABA", "BBAA", 2, 2);
}

Test(nodes, a_good_order_stays) {
  ORDER("AABB", "AABB", 2, 2);
  ORDER("AAAA", "AAAA", 2, 2);
  ORDER("BBBBAAAA", "BBBBAAAA", 2, 2, 2);
  ORDER("A", "A", 1);
}

Test(nodes, unequal_nodes) {
  ORDER("AABABBAA", "AAAAABBB", 8); /* one block of all: by node */
  ORDER("ABBBAAAB", "AAAABBBB", 2, 2, 2);
  ORDER("AAAAABBB", "AAAAABBB", 4, 2);         /* one group spans nodes in any order */
  ORDER("AAAAABBBBCCC", "AAAABBBBACCC", 3, 4); /* two of three groups; in order it would be one */
  ORDER("ABBC", "ACBB", 2, 2);                 /* rank 0 is alone, and B has room for a group */
  ORDER("ABBBBBBCCC", "ACCCBBBBBB", 5, 2);     /* what is missing is taken where something is over */
  ORDER("AABBBBBBAABB", "AAAABBBBBBBB", 3, 4);
}

Test(nodes, nodes_smaller_than_a_group) {
  ORDER("ABAB", "AABB", 1, 4);
  ORDER("ABABCDCD", "AABBCCDD", 2, 4);
}

/* As many groups of the fastest dim as nodes have room for are on one node, whatever the nodes. */
Test(nodes, no_group_spans_nodes_without_need) {
  ZbArena *a = zb_arena_new();
  for (uint64_t seed = 0; seed < 2000; seed++) {
    uint64_t x = 0;
    int64_t inner = 1 + (int64_t)(zb_random_u64(seed, 1, x++) % 5), outer[2];
    for (int i = 0; i < 2; i++) outer[i] = 1 + (int64_t)(zb_random_u64(seed, 1, x++) % 3);
    ZpMesh m = mesh_of((const int64_t[]){outer[0], outer[1], inner, 0});
    int node[64], got[64], count[4] = {0}, room = 0, inside = 0, n = (int)m.nranks;
    for (int i = 0; i < n; i++) count[node[i] = (int)(zb_random_u64(seed, 1, x++) % 4)]++;
    for (int k = 0; k < 4; k++) room += count[k] / (int)inner;
    zp_order_ranks(&m, a, node, got);
    for (int i = 0; i < n; i += (int)inner) {
      bool span = false;
      for (int k = 1; k < inner; k++) span |= node[got[i + k]] != node[got[i]];
      inside += !span;
    }
    cr_assert_eq(inside, room, "seed %d: %d groups of %d ranks are on one node, not %d", (int)seed, inside,
                 (int)inner, room);
  }
  zb_arena_free(a);
}

static void tells(const char *nodes, const char *want, int line, const int64_t *size) {
  ZbArena *a = zb_arena_new();
  ZbText t = {0};
  ZpMesh m = mesh_of(size);
  int node[64], got[64];
  for (int i = 0; i < (int)m.nranks; i++) node[i] = nodes[i];
  zp_order_ranks(&m, a, node, got);
  zp_show_nodes(&m, a, node, got, &t);
  cr_expect_str_eq(t.s ? t.s : "", want, "line %d: %s", line, t.s ? t.s : "");
  zb_text_free(&t);
  zb_arena_free(a);
}
#define TELLS(nodes, want, ...) tells(nodes, want, __LINE__, (const int64_t[]){__VA_ARGS__, 0})

Test(nodes, what_is_said) {
  TELLS("AAAA", "", 2, 2);
  TELLS("AABB", "2 nodes of 2 ranks; inside nodes: b; between nodes: a\n", 2, 2);
  TELLS("ABABABAB",
        "2 nodes of 4 ranks; inside nodes: b x c; between nodes: a\n"
        "ranks are in order of nodes: 0 to 3 (mpirun's 0 to 6 by 2); 4 to 7 (mpirun's 1 to 7 by 2)\n",
        2, 2, 2);
  TELLS("AABBCCDD",
        "4 nodes of 2 ranks; between nodes: a x b\nnote: b (4 ranks) spans nodes: none has so many ranks\n",
        2, 4);
  TELLS("AAABBB",
        "2 nodes of 3 ranks; between nodes: a x b\n"
        "note: 1 of 3 groups of b (2 ranks) spans nodes and waits for the network: nodes of 3 ranks hold no "
        "whole number "
        "of them; give nodes a multiple of 2 ranks\n",
        3, 2);
  TELLS("AAAAAABB",
        "2 nodes of 2 to 6 ranks; inside nodes: c; between nodes: a x b\n"
        "note: 1 of 2 groups of b x c (4 ranks) spans nodes and waits for the network: nodes of 6 or 2 ranks "
        "hold no whole "
        "number of them; give nodes a multiple of 4 ranks\n",
        2, 2, 2);
  TELLS("ABBBCCCCCDDDDDDDEEEEEEEEEFFFFFFFFFFF", /* the first four sizes are enough */
        "6 nodes of 1 to 11 ranks; between nodes: a x b\n"
        "note: 3 of 18 groups of b (2 ranks) span nodes and wait for the network: nodes of 1 or 3 or 5 or 7 "
        "ranks hold no "
        "whole number of them; give nodes a multiple of 2 ranks\n",
        18, 2);
  TELLS("ABCDEFGHABCDEFGH",
        "8 nodes of 2 ranks; inside nodes: b; between nodes: a\n"
        "ranks are in order of nodes: 0, 1 (mpirun's 0, 8); 2, 3 (mpirun's 1, 9); 4, 5 (mpirun's 2, 10); 6, "
        "7 (mpirun's 3, 11); "
        "8, 9 (mpirun's 4, 12); 10, 11 (mpirun's 5, 13); 12, 13 (mpirun's 6, 14); 14, 15 (mpirun's 7, 15)\n",
        8, 2);
  TELLS("ABCDEFGHIABCDEFGHI", /* as are eight nodes' ranks */
        "9 nodes of 2 ranks; inside nodes: b; between nodes: a\n"
        "ranks are in order of nodes: 0, 1 (mpirun's 0, 9); 2, 3 (mpirun's 1, 10); 4, 5 (mpirun's 2, 11); 6, "
        "7 (mpirun's 3, 12); "
        "8, 9 (mpirun's 4, 13); 10, 11 (mpirun's 5, 14); 12, 13 (mpirun's 6, 15); 14, 15 (mpirun's 7, 16); "
        "and so on\n",
        9, 2);
  TELLS("AB", "2 nodes of 1 rank; between nodes: a\n", 2);
}

/* Coordinates along every choice of dims, counted as an odometer does: the last dim is the fastest. */
Test(nodes, members_of_groups) {
  ZpMesh m = mesh_of((const int64_t[]){2, 3, 4, 0});
  for (int64_t rank = 0; rank < m.nranks; rank++)
    for (ZpDims dims = 0; dims < 1u << m.ndims; dims++) {
      int64_t c[3] = {rank / 12, rank / 4 % 3, rank % 4};
      for (int d = 0; d < 3; d++)
        if (dims >> d & 1) c[d] = 0;
      for (int64_t i = 0; i < zp_group_size(&m, dims); i++) {
        cr_assert_eq(zp_group_member(&m, rank, dims, i), (c[0] * 3 + c[1]) * 4 + c[2]);
        for (int d = 3; d-- > 0;) {
          if (!(dims >> d & 1)) continue;
          if (++c[d] < m.dim[d].size) break;
          c[d] = 0;
        }
      }
    }
}
