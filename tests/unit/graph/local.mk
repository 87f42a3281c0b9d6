# Unit tests of graph: see the conventions at the top of Makefile.am.
