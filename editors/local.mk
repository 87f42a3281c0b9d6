# editors: colours for .zug files in Vim and VS Code, installed under share/zug/editors; docs/developers/build.md says how to take them.
vimdir = $(pkgdatadir)/editors/vim
vimsyntaxdir = $(vimdir)/syntax
vimdetectdir = $(vimdir)/ftdetect
vscodedir = $(pkgdatadir)/editors/vscode
vimsyntax_DATA = editors/vim/syntax/zug.vim
vimdetect_DATA = editors/vim/ftdetect/zug.vim
dist_vscode_DATA = editors/vscode/package.json editors/vscode/language-configuration.json
vscode_DATA = editors/vscode/zug.tmLanguage.json
editors/vim/syntax/zug.vim: lang/scan.l lang/directives.def editors/syntax.awk
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(AWK) -f $(srcdir)/editors/syntax.awk -v form=vim $(srcdir)/lang/scan.l $(srcdir)/lang/directives.def >$@.tmp && mv $@.tmp $@
editors/vscode/zug.tmLanguage.json: lang/scan.l lang/directives.def editors/syntax.awk
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(AWK) -f $(srcdir)/editors/syntax.awk -v form=textmate $(srcdir)/lang/scan.l $(srcdir)/lang/directives.def >$@.tmp && mv $@.tmp $@
editors/vim/ftdetect/zug.vim: editors/vim/ftdetect.vim
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)cp $(srcdir)/editors/vim/ftdetect.vim $@
CLEANFILES += $(vimsyntax_DATA) $(vimdetect_DATA) $(vscode_DATA)
