# beside.sh DIR [FILE...]: copies the libraries that DIR/bin's programs and these files need to DIR/lib, where they look first. What
# belongs to the machine stays out: the C library, the compiler's libgcc_s, the driver of GPUs and CUDA's libraries, and MPI with all
# that it needs itself (MPI=beside: not that).
set -e
dir=$1
shift
machines='(ld-linux.*|libc|libm|libdl|librt|libpthread|libresolv|libgcc_s|libcuda|libcudart|libcublas.*|libcudnn.*|libnccl|libnvrtc.*|libnvidia.*)\.so.*|linux-vdso.*'
[ "$MPI" = beside ] || machines="$machines|(libmpi.*|libmpich.*)\.so.*"
mkdir -p "$dir/lib"
needed() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vxE "$machines"; }
# Libraries of libraries too: each is looked at once, as itself and not as what it becomes.
todo="$(echo "$dir"/bin/*) $*"
while [ "$todo" ]; do
  next=
  for file in $todo; do
    for name in $(needed "$file"); do
      [ -e "$dir/lib/$name" ] && continue
      from=$(ldd "$file" | awk -v name="$name" '$1 == name && $2 == "=>" && $3 ~ "^/" { print $3; exit }')
      [ "$from" ] || { echo "beside.sh: $name, which $file needs, is not found" >&2; exit 1; }
      cp -L "$from" "$dir/lib/$name"
      chmod u+w "$dir/lib/$name"
      next="$next $from"
    done
  done
  todo=$next
done
