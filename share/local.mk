# share: what `make install` gives beside the programs: their man pages, which they write themselves, and completion.
man1_MANS = $(bin_PROGRAMS:%=share/%.1)
$(man1_MANS): share/%.1: %
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN){ ./$* --man-page && echo .SH SEE ALSO && printf '.BR %s (1),\n' $(filter-out $*,$(bin_PROGRAMS)) | sed '$$s/,$$//'; } >$@.tmp && mv $@.tmp $@
CLEANFILES += $(man1_MANS)

# What is installed is linked a second time, as installed/NAME: for programs that may lie anywhere, with their libraries and modules
# in ../lib. Those of the build folder have no business there: it is not ours.
installed = $(bin_PROGRAMS:%=installed/%) $(modules_PROGRAMS:%=installed/%)
all-local: $(installed)
automakes_name = $(subst .,_,$(subst -,_,$(subst /,_,$(@:installed/%=%))))
link_installed = $(MKDIR_P) $(@D) && $(or $($(automakes_name)_LINK),$(LINK)) $(filter base/%,$^) $($(automakes_name)_OBJECTS) \
  $($(automakes_name)_LDADD) $(LIBS)
installed/%: private beside = -Wl,-rpath,'$$ORIGIN/../lib'
installed/%: % base/installed.o
	$(AM_V_CCLD)$(link_installed)
installed/%.so: private beside = -Wl,-rpath,'$$ORIGIN/..'
installed/%.so: %.so
	$(AM_V_CCLD)$(link_installed)
install-exec-hook:
	for p in $(bin_PROGRAMS); do \
	  $(INSTALL_PROGRAM) installed/$$p $(DESTDIR)$(bindir)/$$(echo $$p | sed '$(transform)') || exit 1; done
.SECONDARY: base/installed.o
CLEANFILES += $(installed) base/installed.o
DISTCLEANFILES += base/$(DEPDIR)/installed.Po

bash_completions = $(datadir)/bash-completion/completions
zsh_completions = $(datadir)/zsh/site-functions
install-data-hook:
	for m in $(modules_PROGRAMS); do $(INSTALL_PROGRAM) installed/$$m $(DESTDIR)$(modulesdir)/$$m || exit 1; done
	$(MKDIR_P) $(DESTDIR)$(bash_completions) $(DESTDIR)$(zsh_completions)
	for p in $(bin_PROGRAMS); do $(INSTALL_DATA) $(srcdir)/share/complete.bash $(DESTDIR)$(bash_completions)/$$p || exit 1; done
	$(INSTALL_DATA) $(srcdir)/share/complete.zsh $(DESTDIR)$(zsh_completions)/_zug
uninstall-hook:
	for p in $(bin_PROGRAMS); do rm -f $(DESTDIR)$(bash_completions)/$$p; done
	rm -f $(DESTDIR)$(zsh_completions)/_zug

# All of it in one folder, which can be moved, and copied to machines of this kind.
relocatable: all
	@test -n '$(TO)' || { echo 'make relocatable TO=DIR: which folder?'; exit 2; }
	@case '$(TO)' in /*) ;; *) echo 'make relocatable: TO=$(TO) must begin with /'; exit 2 ;; esac
	$(MAKE) $(AM_MAKEFLAGS) install-strip prefix='$(TO)' exec_prefix='$(TO)' DESTDIR=
	$(SHELL) $(srcdir)/share/beside.sh '$(TO)'
.PHONY: relocatable

# The pictures of the documents, anew: look at them, in light and in dark, before committing.
docs-images: zc zplan zdata zrun zlog
	PATH='$(abs_builddir)':"$$PATH" ZUG_SRC='$(abs_top_srcdir)' $(SHELL) $(srcdir)/docs/images/draw.sh

# The pages of docs/ that say what programs say: a page for each program, as its man page; and the gallery, with the comments of
# examples/published.zug.
docs-reference: $(bin_PROGRAMS)
	for p in $(bin_PROGRAMS); do ./$$p --man-page | $(AWK) -f $(srcdir)/docs/reference/page.awk >page.tmp && \
	  mv page.tmp $(srcdir)/docs/reference/$$p.md || exit 1; done
docs-gallery: zc zplan
	PATH='$(abs_builddir)':"$$PATH" ZUG_SRC='$(abs_top_srcdir)' $(SHELL) $(srcdir)/docs/gallery.sh measure
	PATH='$(abs_builddir)':"$$PATH" ZUG_SRC='$(abs_top_srcdir)' $(SHELL) $(srcdir)/docs/gallery.sh page >page.tmp && \
	  mv page.tmp $(srcdir)/docs/gallery.md
.PHONY: docs-images docs-reference docs-gallery
