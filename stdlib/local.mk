# stdlib: blocks in the language itself; the tools carry them inside (lang/local.mk embeds them).
stdlib_files = stdlib/std/nn.zug
EXTRA_DIST += $(stdlib_files)
