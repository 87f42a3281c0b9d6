au BufNewFile,BufRead *.zug setf zug
