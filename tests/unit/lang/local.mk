# Unit tests of lang: see the conventions at the top of Makefile.am.
