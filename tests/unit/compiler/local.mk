# Unit tests of compiler: see the conventions at the top of Makefile.am.
