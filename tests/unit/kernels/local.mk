# Unit tests of kernels: see the conventions at the top of Makefile.am.
