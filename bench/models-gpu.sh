# The models that are measured on one GPU, for Zug and for PyTorch: bench-gpu.sh and tests/scenarios/gpu/kit read this.

# Sets of a model `file` in examples, `sizes` that both have, `more` that Zug's file wants, and `words`, PyTorch's vocabulary (padded).
measured_model() { # NAME
  file=gpt2 words=32000 more="words=32000"
  case $1 in
  gpt2) sizes="layers=12 heads=12 width=768" more="context=1024" words=50304 ;;
  llama) file=llama3 sizes="layers=16 heads=32 kv_heads=8 width=2048 inner=8192" ;;
  tiny_gpt2) sizes="layers=2 heads=4 width=64" more="$more context=64" ;;
  tiny_llama) file=llama3 sizes="layers=2 heads=4 kv_heads=2 width=64 inner=128" ;;
  *) return 1 ;;
  esac
}

# Sets `batch`, `seq` and `micro` to what a recipe binds: recipes-gpu.zug has a line for each.
measured_recipe() { # FILE NAME
  line=$(grep "^recipe $2 " "$1") && batch=$(number batch) && seq=$(number seq) && micro=$(number micro)
}
number() { echo "$line" | sed "s/.* $1 *=* *\([0-9]*\).*/\1/"; } # NAME

# Prints the options of torch_lm.py for the model and the recipe that were set.
torch_options() { # NAME
  printf -- '--model %s --batch %s --seq %s --micro %s --words %s --ids 32000' "${1#tiny_}" "$batch" "$seq" "$micro" "$words"
  for size in $sizes; do printf -- ' --%s %s' "$(echo "${size%=*}" | tr _ -)" "${size#*=}"; done
}

# Prints what memory moves by NVIDIA's data sheet in GB/s; 0: not known here.
memory_sheet() { # what holds the card's name
  case $1 in
  *H200*) echo 4800 ;;
  *'H100 PCIe'*) echo 2000 ;;
  *'H100 NVL'*) echo 3900 ;;
  *H100*) echo 3350 ;;
  *A100*80*) echo 2039 ;;
  *A100*) echo 1555 ;;
  *) echo 0 ;;
  esac
}

# Prints the dense bf16 rate of NVIDIA's data sheet in TFLOP/s; 0: not known here.
data_sheet() { # what holds the card's name
  case $1 in
  *'H100 PCIe'*) echo 756 ;;
  *'H100 NVL'*) echo 835 ;;
  *H100* | *H200*) echo 989 ;;
  *A100*) echo 312 ;;
  *) echo 0 ;;
  esac
}
