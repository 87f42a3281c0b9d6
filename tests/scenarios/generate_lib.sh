# What generate_hf.sh and generate_cuda.sh share: families of tests/data/hf against what transformers writes.
hf=$ZUG_SRC/tests/data/hf

# Numbers after "logprob" of each token, of all lines of out.jsonl.
logs() { tr '{' '\n' <out.jsonl | sed -n 's/.*"logprob":\([^,]*\),"top_logprobs".*/\1/p' | grep -v null; }

# Ids and log-probabilities of a folder's file `greedy` against those of `write MODEL OPTION...`, which makes out.jsonl of in.jsonl.
family() { # FOLDER [MODEL OPTION...]
  folder=$1
  shift
  [ $# -gt 0 ] || set -- "$hf/$folder"
  while read -r prompt answer rest; do
    echo "{\"tokens\": [$prompt], \"max_tokens\": $(echo "$answer" | tr ',' '\n' | wc -l), \"ignore_eos\": true, \"echo\": true, \"logprobs\": 0}"
  done <"$hf/$folder/greedy" >in.jsonl
  write "$@"
  sed 's/.*"tokens":\[\([0-9,]*\)\].*/\1/' out.jsonl >ids
  sed 's/ /,/; s/ .*//' "$hf/$folder/greedy" >wanted
  diff wanted ids || fail "$folder writes other ids than transformers"
  logs >has
  sed 's/.* //' "$hf/$folder/greedy" | tr ',' '\n' | paste - has |
    awk -v family="$folder" '{ d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d; n++; if ($2 !~ /^-/) bad = 1 }
      END { printf "%s: %d log-probabilities, at most %.1e apart\n", family, n, most; exit bad || n < 62 || most > 1e-5 }' ||
    fail "$folder: log-probabilities differ from those of transformers"
}
