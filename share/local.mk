# share: what `make install` gives beside the programs: their man pages and completion, made of what they say with --help.
what_zc = compile a model to a stage graph
what_zplan = show, explain, check and time the plan of a run
what_zrun = train or evaluate a stage graph on many ranks
what_zdata = make and inspect the files that zrun trains from
what_zckpt = look at checkpoints, and hand weights to other programs
what_zkeep = keep a run going
what_zlog = draw, compare and follow runs
man1_MANS = $(bin_PROGRAMS:%=share/%.1)
$(man1_MANS): share/%.1: % share/man.awk
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)./$* --help | $(AWK) -f $(srcdir)/share/man.awk -v name=$* -v what='$(what_$*)' -v version=$(PACKAGE_VERSION) >$@.tmp && mv $@.tmp $@
CLEANFILES += $(man1_MANS)
completions = share/zug.bash share/zug.zsh
$(completions): share/zug.%: share/complete.% share/words.awk
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)sed -e '/^@WORDS@$$/{r $(srcdir)/share/words.awk' -e 'd;}' $(srcdir)/share/complete.$* >$@.tmp && mv $@.tmp $@
CLEANFILES += $(completions)

# What is installed is linked a second time, as installed/NAME: for programs that may lie anywhere, with their libraries and modules
# in ../lib. Those of the build folder have no business there: it is not ours.
installed = $(bin_PROGRAMS:%=installed/%) $(modules_PROGRAMS:%=installed/%)
all-local: $(installed) $(completions)
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

bash_completions = $(datadir)/bash-completion/completions
zsh_completions = $(datadir)/zsh/site-functions
install-data-hook:
	for m in $(modules_PROGRAMS); do $(INSTALL_PROGRAM) installed/$$m $(DESTDIR)$(modulesdir)/$$m || exit 1; done
	$(MKDIR_P) $(DESTDIR)$(bash_completions) $(DESTDIR)$(zsh_completions)
	for p in $(bin_PROGRAMS); do $(INSTALL_DATA) share/zug.bash $(DESTDIR)$(bash_completions)/$$p || exit 1; done
	$(INSTALL_DATA) share/zug.zsh $(DESTDIR)$(zsh_completions)/_zug
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
