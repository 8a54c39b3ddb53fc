#!/opt/holdfast/busybox sh
# Feeds the input of one durable process: `feed-process.sh BUSYBOX DIRECTORY`. Reads a line for each piece of input:
#
#   feed OFFSET   copies the file in-OFFSET to its standard output, and empties the file
#   line OFFSET   the same for a file with one short line of text, without starting a program for it
#   close         ends the input
#
# A line may come twice: an emptied file has nothing to copy. If a copy fails, nobody knows how much of it arrived, so
# the rest is left alone.
hf_bb=$1
hf_dir=$2
while read -r hf_do hf_at; do
  case $hf_do in
    close) exit ;;
    feed | line)
      case $hf_at in
        '' | *[!0-9]*) continue ;;
      esac
      [ -s "$hf_dir/in-$hf_at" ] || continue
      case $hf_do in
        feed) "$hf_bb" cat <"$hf_dir/in-$hf_at" || exit ;;
        line) IFS= read -r hf_text <"$hf_dir/in-$hf_at" && printf '%s\n' "$hf_text" || exit ;;
      esac
      : >"$hf_dir/in-$hf_at"
      ;;
  esac
done
