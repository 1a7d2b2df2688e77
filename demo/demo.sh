#!/usr/bin/env bash
# Trains a ternary language model on the King James text, exports it as GGUF, lets it write, and compares it with
# compressors on the last 3 % of the text, which neither has seen. All that it makes is in build/demo/.
# DEMO_MINUTES is how long it trains.
set -euo pipefail
cd "$(dirname "$0")/.."
rlx=build/rlx
out=build/demo
minutes=${DEMO_MINUTES:-3.7}
fail() { echo "demo: $*" >&2; exit 1; }

# ---- the text
mkdir -p $out
echo | bible -f 'gen1:1-rev22:21' >$out/text.txt
[ "$(wc -c <$out/text.txt)" -gt 4000000 ] || fail "bible printed only $(wc -c <$out/text.txt) bytes of the King James text"

# ---- the model
echo "== Training for $minutes minutes"
config=()
[ ! -f demo/config.json ] || config=(--config demo/config.json)
$rlx train --data $out/text.txt --out $out/run "${config[@]}" --minutes "$minutes" --overwrite
echo "== Exporting"
$rlx export $out/run -o $out/model.gguf --type tq2_0

# The same split as the trainer's.
train_bytes=$(jq .train_bytes $out/run/data.json)
head -c "$train_bytes" $out/text.txt >$out/train.txt
tail -c +$((train_bytes + 1)) $out/text.txt >$out/heldout.txt
heldout_bytes=$(wc -c <$out/heldout.txt)
[ "$heldout_bytes" = "$(jq .validation_bytes $out/run/data.json)" ] || fail "the run's split does not fit the text"

echo "== Measuring on $heldout_bytes held-out bytes"
$rlx eval $out/model.gguf --data $out/heldout.txt --json >$out/eval.json
$rlx inspect $out/model.gguf --json >$out/inspect.json
echo "== A passage, sampled at temperature 0.8"
$rlx generate $out/model.gguf --prompt "Rev22:22 And" -n 200 --temperature 0.8 --top-p 0.95 --seed 1 --json >$out/passage.json
jq -r .text $out/passage.json
echo

# ---- the compressors: bits for each held-out byte, alone and after the training text
bits() { awk -v bytes="$1" -v of="$heldout_bytes" 'BEGIN { printf "%.4f", 8 * bytes / of }'; }
alone() { bits "$("$@" -c $out/heldout.txt | wc -c)"; }
primed() { bits $(($("$@" -c $out/text.txt | wc -c) - $("$@" -c $out/train.txt | wc -c))); }
gzip=$(alone gzip -9) xz=$(alone xz -9) bzip2=$(alone bzip2 -9)
gzip_primed=$(primed gzip -9) xz_primed=$(primed xz -9) bzip2_primed=$(primed bzip2 -9)

# ---- the result
speed='map(select(.tokens_per_s) | .tokens_per_s) | sort | .[length / 2 | floor]'  # the median over the run
jq -n --slurpfile inspect $out/inspect.json --slurpfile eval $out/eval.json --slurpfile passage $out/passage.json \
  --argjson gguf_bytes "$(wc -c <$out/model.gguf)" --argjson train_speed "$(jq -s "$speed" $out/run/metrics.jsonl)" \
  --argjson gzip "$gzip" --argjson xz "$xz" --argjson bzip2 "$bzip2" \
  --argjson xz_primed "$xz_primed" --argjson bzip2_primed "$bzip2_primed" '$inspect[0].params as $params | {
    params: $params, f32_bytes: ($params * 4), gguf_bytes: $gguf_bytes, bits_per_weight: $inspect[0].bits_per_weight,
    val_bits_per_byte: $eval[0].bits_per_byte,
    gzip_bits_per_byte: $gzip, xz_bits_per_byte: $xz, bzip2_bits_per_byte: $bzip2,
    xz_primed_bits_per_byte: $xz_primed, bzip2_primed_bits_per_byte: $bzip2_primed,
    train_tokens_per_s: $train_speed, generate_tokens_per_s: $passage[0].tokens_per_s
  }' >$out/summary.json
jq -e 'map_values(type == "number") | all' $out/summary.json >/dev/null ||
  fail "a number is missing: $(jq -c . $out/summary.json)"

value() { jq ".$1" $out/summary.json; }
model=$(value val_bits_per_byte)
row() { printf '%-34s %12s\n' "$1" "$2"; }
echo "Ternary language model, trained for $minutes minutes on $(nproc) cores"
row "parameters" "$(value params)"
row "size as f32, bytes" "$(value f32_bytes)"
row "size as GGUF, bytes" "$(value gguf_bytes)"
row "bits per weight, all tensors" "$(printf %.2f "$(value bits_per_weight)")"
row "training, tokens/s" "$(printf %.0f "$(value train_tokens_per_s)")"
row "generation, tokens/s" "$(printf %.0f "$(value generate_tokens_per_s)")"
echo
printf '%-34s %12s %12s\n' "bits per held-out byte" alone "primed"
printf '%-34s %12s %12.2f\n' "model" "" "$model"
printf '%-34s %12.2f %12.2f\n' "gzip -9" "$gzip" "$gzip_primed" "xz -9" "$xz" "$xz_primed" \
  "bzip2 -9" "$bzip2" "$bzip2_primed"
echo "(primed: after the training text, which the model has seen too)"

below() { awk -v a="$model" -v b="$1" 'BEGIN { exit !(a < b) }'; }
worse=()
for rival in "gzip $gzip" "xz $xz" "bzip2 $bzip2" "primed-gzip $gzip_primed" "primed-xz $xz_primed"; do
  below "${rival#* }" || worse+=("${rival%% *} (${rival#* })")
done
[ ${#worse[@]} = 0 ] || fail "the model needs $model bits per byte and is not below ${worse[*]}"
below "$bzip2_primed" || echo "demo: the model is not below primed bzip2 ($bzip2_primed), which is the aim"
