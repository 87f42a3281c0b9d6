# Unit tests of exec: see the conventions at the top of Makefile.am.
