// The config of a model and its training: JSON in and out, and what is allowed.
#include "train/config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "train/model.h"

namespace rlx {
namespace {

using Json = nlohmann::ordered_json;

template <class Config, class F>
void visit_precision(Config& c, F&& f) {
  f("precision", c.precision);
  f("gradient_format", c.gradient_format);
  f("codebook_entry_dim", c.codebook_entry_dim);
  f("codebook_entries", c.codebook_entries);
}

template <class Config, class F>
void visit_training(Config& c, F&& f) {
  visit_model_config(c.model, f);
  visit_precision(c.model, f);
  f("codebook_after", c.codebook_after);
  f("tokenizer", c.tokenizer);
  f("validation_fraction", c.validation_fraction);
  f("batch_size", c.batch_size);
  f("accumulation", c.accumulation);
  f("optimizer", c.optimizer);
  f("learning_rate", c.learning_rate);
  f("muon_learning_rate", c.muon_learning_rate);
  f("weight_decay", c.weight_decay);
  f("clip_norm", c.clip_norm);
  f("beta1", c.beta1);
  f("beta2", c.beta2);
  f("epsilon", c.epsilon);
  f("momentum", c.momentum);
  f("muon_scale", c.muon_scale);
  f("muon_bf16", c.muon_bf16);
  f("schedule", c.schedule);
  f("warmup_steps", c.warmup_steps);
  f("steps", c.steps);
  f("minutes", c.minutes);
  f("seed", c.seed);
  f("validate_every", c.validate_every);
  f("checkpoint_every", c.checkpoint_every);
}

// Reads one value; gives what was expected where it is of another type.
const char* read(const Json& from, std::string& to) {
  if (!from.is_string()) return "text";
  to = from;
  return nullptr;
}
const char* read(const Json& from, bool& to) {
  if (!from.is_boolean()) return "true or false";
  to = from;
  return nullptr;
}
const char* read(const Json& from, double& to) {
  if (!from.is_number()) return "a number";
  to = from;
  return nullptr;
}
const char* read(const Json& from, std::int64_t& to) {
  if (!from.is_number_integer() || (from.is_number_unsigned() && from.get<std::uint64_t>() > INT64_MAX))
    return "a whole number";
  to = from;
  return nullptr;
}
const char* read(const Json& from, std::uint64_t& to) {
  if (!from.is_number_unsigned()) return "a whole number, 0 or more";
  to = from;
  return nullptr;
}

class Checker {
 public:
  explicit Checker(const std::string& where) : where_(where) {}
  template <class T>
  void expect(bool good, const char* key, const T& value, std::string_view expected) const {
    if (!good)
      throw UserError(fmt::format("[config] {}: got {} = {}, expected {}", where_, key, Json(value).dump(), expected));
  }
  void at_least(const char* key, std::int64_t value, std::int64_t low,
                std::int64_t high = std::int64_t(1) << 31) const {
    expect(value >= low && value <= high, key, value, fmt::format("a number from {} to {}", low, high));
  }
  void in(const char* key, double value, double low, double high) const {
    expect(value >= low && value <= high, key, value, fmt::format("a number from {} to {}", low, high));
  }
  void below(const char* key, double value, double high) const {
    expect(value >= 0 && value < high, key, value, fmt::format("0 or more and less than {}", high));
  }
  void positive(const char* key, double value) const {
    expect(value > 0 && value <= 1e30, key, value, "a number above 0");
  }
  void one_of(const char* key, const std::string& value, const std::vector<std::string>& names) const {
    for (auto& name : names)
      if (name == value) return;
    expect(false, key, value, fmt::format("one of {}", fmt::join(names, ", ")));
  }

 private:
  const std::string& where_;
};

}  // namespace

namespace {

// No weight is left out in silence.
void check_codebook(const Checker& check, const ModelConfig& c) {
  for (auto& p : model_params(c)) {
    if (!p.is_linear) continue;
    check.expect(p.shape[1] % c.codebook_entry_dim == 0, "codebook_entry_dim", c.codebook_entry_dim,
                 fmt::format("a divisor of the {} inputs of {}", p.shape[1], p.name));
    check.expect(count(p.shape) / c.codebook_entry_dim >= c.codebook_entries, "codebook_entries", c.codebook_entries,
                 fmt::format("at most the {} vectors that {} has", count(p.shape) / c.codebook_entry_dim, p.name));
  }
}

}  // namespace

void check_model_config(const ModelConfig& c, const std::string& where) {
  Checker check(where);
  check.at_least("vocab_size", c.vocab_size, 2, 1 << 20);
  check.at_least("context_length", c.context_length, 1, 1 << 20);
  check.at_least("embedding_length", c.embedding_length, 1, 1 << 16);
  check.at_least("block_count", c.block_count, 1, 1000);
  check.at_least("feed_forward_length", c.feed_forward_length, 1, 1 << 18);
  check.at_least("head_count", c.head_count, 1, 1 << 12);
  check.at_least("head_count_kv", c.head_count_kv, 1, 1 << 12);
  check.expect(c.embedding_length % (2 * c.head_count) == 0, "head_count", c.head_count,
               fmt::format("heads of an even length: embedding_length {} / head_count", c.embedding_length));
  check.expect(c.head_count % c.head_count_kv == 0, "head_count_kv", c.head_count_kv,
               fmt::format("a divisor of head_count {}", c.head_count));
  check.positive("rope_freq_base", c.rope_freq_base);
  check.positive("rms_norm_epsilon", c.rms_norm_epsilon);
  check.one_of("activation", c.activation, {"silu", "relu2"});
  check.one_of("precision", c.precision, precision_names());
  auto& p = precision(c.precision);
  check.one_of("gradient_format", c.gradient_format, {"f32", "e5m2"});
  check.expect(c.gradient_format == "f32" || (p.form == WeightForm::Scaled && p.name != "nvfp4"), "gradient_format",
               c.gradient_format, fmt::format("f32 in precision {}", c.precision));
  check.at_least("codebook_entry_dim", c.codebook_entry_dim, 1, 64);
  check.at_least("codebook_entries", c.codebook_entries, 1, 256);
  if (p.form == WeightForm::Codebook) check_codebook(check, c);
}

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = {"adamw", "muon", "sgd", "lion", "adafactor", "lamb"};
  return names;
}

void check_config(const TrainConfig& c, const std::string& where) {
  Checker check(where);
  check_model_config(c.model, where);
  check.one_of("tokenizer", c.tokenizer, {"bpe", "bytes"});
  check.expect(c.tokenizer != "bytes" || c.model.vocab_size == kByteVocabSize, "vocab_size", c.model.vocab_size,
               fmt::format("{}, as the bytes tokenizer has", kByteVocabSize));
  check.expect(c.validation_fraction > 0 && c.validation_fraction < 1, "validation_fraction", c.validation_fraction,
               "a number between 0 and 1");
  check.at_least("batch_size", c.batch_size, 1, 1 << 16);
  check.at_least("accumulation", c.accumulation, 1, 64);
  check.one_of("optimizer", c.optimizer, optimizer_names());
  check.positive("learning_rate", c.learning_rate);
  check.positive("muon_learning_rate", c.muon_learning_rate);
  check.in("weight_decay", c.weight_decay, 0, 1e3);
  check.in("clip_norm", c.clip_norm, 0, 1e30);
  check.below("beta1", c.beta1, 1);
  check.below("beta2", c.beta2, 1);
  check.positive("epsilon", c.epsilon);
  check.below("momentum", c.momentum, 1);
  check.below("codebook_after", c.codebook_after, 1);
  check.one_of("muon_scale", c.muon_scale, {"original", "match_rms_adamw", "none"});
  check.one_of("schedule", c.schedule, {"constant", "linear", "cosine", "bitnet"});
  check.at_least("warmup_steps", c.warmup_steps, 0);
  check.at_least("steps", c.steps, 0);
  check.in("minutes", c.minutes, 0, 1e6);
  check.expect(c.steps == 0 || c.minutes == 0, "minutes", c.minutes, "steps or minutes, not both");
  check.at_least("validate_every", c.validate_every, 0);
  check.at_least("checkpoint_every", c.checkpoint_every, 0);
}

TrainConfig parse_config(std::string_view json, const std::string& where) {
  Json object;
  try {
    object = Json::parse(json);
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("[config] {}: not JSON: {}", where, error.what()));
  }
  if (!object.is_object())
    throw UserError(fmt::format("[config] {}: got {}, expected a JSON object", where, object.type_name()));
  TrainConfig config;
  for (auto& [key, value] : object.items()) {
    if (key == "architecture") {
      if (value != "bitnet")
        throw UserError(fmt::format("[config] {}: got architecture = {}, expected \"bitnet\"", where, value.dump()));
      continue;
    }
    bool known = false;
    visit_training(config, [&](std::string_view name, auto& member) {
      if (name != key) return;
      known = true;
      if (const char* expected = read(value, member))
        throw UserError(fmt::format("[config] {}: got {} = {}, expected {}", where, key, value.dump(), expected));
    });
    if (!known) throw UserError(fmt::format("[config] {}: unknown key \"{}\"", where, key));
  }
  if (config.tokenizer == "bytes" && !object.contains("vocab_size")) config.model.vocab_size = kByteVocabSize;
  check_config(config, where);
  return config;
}

TrainConfig load_config(const std::string& path) { return parse_config(read_file(path, 1 << 20), path); }

std::string model_config_json(const ModelConfig& config) {
  Json object = {{"architecture", "bitnet"}};
  auto add = [&](const char* name, auto& member) { object[name] = member; };
  visit_model_config(config, add);
  visit_precision(config, add);
  return object.dump();
}

std::string config_json(const TrainConfig& config) {
  Json object = {{"architecture", "bitnet"}};
  visit_training(config, [&](const char* name, auto& member) { object[name] = member; });
  return object.dump(2) + "\n";
}

}  // namespace rlx
