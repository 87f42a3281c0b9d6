# stdlib: blocks in the language itself; the tools carry them inside (lang/local.mk embeds them). Installed for reading.
stdlib_files = stdlib/std/nn.zug \
  stdlib/std/recurrent.zug
stdlibdir = $(pkgdatadir)/stdlib/std
dist_stdlib_DATA = $(stdlib_files)
