# Unit tests of plan: see the conventions at the top of Makefile.am.
