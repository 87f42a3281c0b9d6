# unicode.txt as C tables: awk -f unicode.awk unicode.txt > unicode.embed.c
function pair(word, split_at,   x) {
  split(word, x, split_at)
  return "0x" x[1] ", 0x" x[2] ","
}
BEGIN {
  print "/* Made by runtime/text/unicode.awk. */"
  print "#include \"runtime/text/unicode.h\""
}
/^#/ { next }
{ kind = $1; first = 2 }
kind == "set" { kind = "set_" $2; first = 3 }
kind != last {
  if (last != "") print "};"
  last = kind
  if (kind ~ /^set_/) { name[++sets] = $2; print "static const uint32_t " kind "[] = {" }
  else if (kind == "lower") print "const ZtLower zt_lower_table[] = {"
  else if (kind == "class") print "const ZtClassRange zt_class_table[] = {"
  else if (kind == "not_composed") print "const uint32_t zt_not_composed[] = {"
  else print "const ZtDecomposition zt_" kind "_table[] = {"
}
{
  line = " "
  for (i = first; i <= NF; i++) {
    if (kind ~ /^set_/) { line = line " " pair($i, "-"); count[kind] += 2 }
    else if (kind == "not_composed") { line = line " 0x" $i ","; count[kind]++ }
    else {
      count[kind]++
      split($i, x, ":")
      if (kind == "class") line = line " {" pair(x[1], "-") " " x[2] "},"
      else {
        n = split(x[2], y, ",")
        list = ""
        for (k = 1; k <= n; k++) list = list (k > 1 ? ", " : "") "0x" y[k]
        if (kind == "lower") line = line " {0x" x[1] ", {" list "}},"
        else {
          line = line " {0x" x[1] ", " pool + 0 ", " n "},"
          for (k = 1; k <= n; k++) pooled[pool++] = "0x" y[k]
        }
      }
    }
  }
  print line
}
END {
  print "};"
  print "const uint32_t zt_decomposed[] = {"
  for (i = 0; i < pool; i += 8) {
    line = " "
    for (k = i; k < i + 8 && k < pool; k++) line = line " " pooled[k] ","
    print line
  }
  print "};"
  print "const uint32_t zt_nlower = " count["lower"] ", zt_nclass = " count["class"] ", zt_ncanonical = " count["canonical"] ";"
  print "const uint32_t zt_ncompatible = " count["compatible"] ", zt_nnot_composed = " count["not_composed"] ";"
  print "const ZtRanges zt_set_table[ZT_NSETS] = {"
  for (i = 1; i <= sets; i++) print "  [ZT_SET_" name[i] "] = {set_" name[i] ", " count["set_" name[i]] / 2 "},"
  print "};"
}
