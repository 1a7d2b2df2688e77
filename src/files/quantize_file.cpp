// quantize_file: which tensor becomes what, what that loses, and the file.
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "files/tensor_source.h"

namespace rlx {
namespace {

constexpr std::string_view kKeep = "keep";

enum class FileKind : std::uint8_t { Gguf, Safetensors };

FileKind kind_of(const std::string& out) {
  if (out.ends_with(".gguf")) return FileKind::Gguf;
  if (out.ends_with(".safetensors")) return FileKind::Safetensors;
  throw UserError(fmt::format("[quantize] '{}': expected a name that ends in .gguf or .safetensors", out));
}

// ------------------------------------------------------------------------------------------------ what becomes what

struct Plan {
  SourceTensor* source = nullptr;
  std::string type = std::string(kKeep);
  std::string note = "";
};

// Throws where the format of the file has no such type, or none that can be written.
void check_type(FileKind kind, const std::string& type) {
  if (type == kKeep) return;
  if (kind == FileKind::Safetensors) {
    tensor_type(type);
    return;
  }
  auto& format = block_format(type);
  if (format.can_encode()) return;
  std::vector<std::string_view> names;
  for (auto& f : block_formats())
    if (f.can_encode()) names.push_back(f.name);
  throw UserError(fmt::format("[quantize] {} cannot be written, only {}", format.name, fmt::join(names, ", ")));
}

// Why a tensor that no rule names keeps its type; empty where it does not.
std::string reason_to_keep(const SourceTensor& t) {
  if (!t.is_float()) return fmt::format("{} is no float", t.type);
  if (t.shape.size() < 2) return fmt::format("{} axes", t.shape.size());
  if (count(t.shape) == 0) return "no elements";
  return "";
}

std::vector<Plan> make_plans(TensorSource& source, FileKind kind, const QuantizeOptions& options) {
  if (options.type.empty() && options.rules.empty()) throw UserError("[quantize] expected a type or a rule");
  if (!options.type.empty()) check_type(kind, options.type);
  for (auto& rule : options.rules) check_type(kind, rule.type);
  std::vector<std::pair<int, int>> used(options.rules.size());  // tensors that match a rule, and that it decides on
  std::vector<Plan> plans;
  for (auto& t : source.tensors) {
    Plan plan{.source = &t};
    int rule = -1;
    for (std::size_t i = 0; i < options.rules.size(); ++i)
      if (::fnmatch(options.rules[i].pattern.c_str(), t.name.c_str(), 0) == 0) ++used[i].first, rule = int(i);
    if (rule >= 0) {
      ++used[std::size_t(rule)].second;
      plan.type = options.rules[std::size_t(rule)].type;
      if (plan.type != kKeep && !t.is_float())
        throw UserError(fmt::format("[quantize] tensor {}: it is {}, which is no float, but the rule '{}' makes it {}",
                                    in_quotes(t.name), t.type, options.rules[std::size_t(rule)].pattern, plan.type));
    } else if (!options.type.empty()) {
      plan.note = reason_to_keep(t);
      if (plan.note.empty()) plan.type = options.type;
    }
    plans.push_back(std::move(plan));
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    auto rule = fmt::format("'{}={}'", options.rules[i].pattern, options.rules[i].type);
    if (used[i].first == 0) throw UserError(fmt::format("[quantize] the rule {} matches no tensor", rule));
    if (used[i].second == 0)
      throw UserError(fmt::format("[quantize] the rule {} decides on no tensor: later rules match all of its", rule));
  }
  return plans;
}

// ------------------------------------------------------------------------------------------------ what is lost

// Blocks of `block` elements of a row, 0 for one block of all.
void measure(QuantizedTensor& row, std::span<const float> before, std::span<const float> after, std::int64_t block) {
  double squares = 0;
  std::int64_t n = std::int64_t(before.size()), columns = block && !row.shape.empty() ? row.shape.back() : n;
  for (std::int64_t i = 0; i < n; ++i) {
    double d = before[std::size_t(i)] == after[std::size_t(i)]
                   ? 0
                   : double(after[std::size_t(i)]) - double(before[std::size_t(i)]);
    if (std::isnan(before[std::size_t(i)]) && std::isnan(after[std::size_t(i)])) d = 0;
    squares += d * d;
    row.max_error = std::max(row.max_error, std::fabs(d));
  }
  row.rms_error = n ? std::sqrt(squares / double(n)) : 0;
  if (block <= 0) block = std::max<std::int64_t>(columns, 1);
  std::int64_t first = -1;
  auto is_zero = [](float v) { return v == 0; };
  for (std::int64_t begin = 0; begin < n;) {
    std::int64_t end = std::min(begin + block, (begin / columns + 1) * columns);
    auto part = [&](auto values) { return values.subspan(std::size_t(begin), std::size_t(end - begin)); };
    auto x = part(before), y = part(after);
    if (std::all_of(y.begin(), y.end(), is_zero) && !std::all_of(x.begin(), x.end(), is_zero)) {
      if (first < 0) first = begin / columns;
      ++row.flushed;
    }
    begin = end;
  }
  if (row.flushed) row.note += fmt::format("{}flushed to 0 first in row {}", row.note.empty() ? "" : "; ", first);
}

// A plain type holds what is not finite, and no other does.
void check_finite(const SourceTensor& t, std::span<const float> before, std::span<const float> after, const char* type,
                  bool is_plain) {
  auto refuse = [&](std::size_t i) {
    throw UserError(fmt::format("[quantize] tensor {}: element {} is {}, which {} cannot hold", in_quotes(t.name), i,
                                before[i], type));
  };
  for (std::size_t i = 0; i < before.size(); ++i)
    if (!is_plain && !std::isfinite(before[i])) refuse(i);
  for (std::size_t i = 0; i < before.size(); ++i)
    if (std::isfinite(before[i]) && !std::isfinite(after[i])) refuse(i);
}

// Values beyond the largest code of a block. The only types with such: a scale of one sign's largest, and OCP's rule.
std::int64_t clipped_in(const BlockFormat& format, std::span<const float> x, std::span<const std::byte> bytes) {
  std::string_view name = format.name;
  double limit = name == "Q4_0" ? 7.5 : name == "Q5_0" ? 15.5 : name == "MXFP4" ? 7 : 0;
  if (limit == 0) return 0;
  std::int64_t out = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    auto block = bytes.data() + std::int64_t(i) / format.elements * format.bytes;
    f16 d;
    std::memcpy(&d, block, sizeof d);
    double scale = name == "MXFP4" ? decode(Format::E8M0, std::uint8_t(block[0])) : double(float(d));
    double ratio = scale == 0 ? 0 : double(x[i]) / scale;
    out += name == "MXFP4" ? std::fabs(ratio) > limit : ratio >= limit;
  }
  return out;
}

// ------------------------------------------------------------------------------------------------ GGUF

// llama.cpp's number for files that are mostly of a type; nothing where there is none.
std::optional<std::uint32_t> file_type_of(std::string_view type) {
  static constexpr std::pair<std::string_view, std::uint32_t> kTypes[] = {
      {"F32", 0},   {"F16", 1},    {"BF16", 32},  {"Q4_0", 2},   {"Q4_1", 3},  {"Q5_0", 8},
      {"Q5_1", 9},  {"Q8_0", 7},   {"Q2_K", 10},  {"Q3_K", 12},  {"Q4_K", 15}, {"Q5_K", 17},
      {"Q6_K", 18}, {"TQ1_0", 36}, {"TQ2_0", 37}, {"MXFP4", 38}, {"NVFP4", 39}};
  for (auto& [name, number] : kTypes)
    if (name == type) return number;
  return std::nullopt;
}

class GgufOut {
 public:
  explicit GgufOut(const TensorSource& source) : source_(source) {}

  // Takes the scales that stand beside tensors which get one of this kind, as ternary weights have them: they are
  // multiplied into the values, and so are no tensors of their own any more.
  void absorb_scales(std::vector<Plan>& plans) {
    if (!source_.gguf) return;
    std::set<std::string> names;
    for (auto& p : plans)
      if (p.type != kKeep && block_format(p.type).has_tensor_scale()) names.insert(tensor_scale_name(p.source->name));
    std::erase_if(plans, [&](const Plan& p) {
      if (p.source->type != "F32" || count(p.source->shape) != 1 || !names.contains(p.source->name)) return false;
      absorbed_.emplace(p.source->name, float(p.source->values().at(0)));
      return true;
    });
  }

  // Each row must be whole blocks; names all tensors of which that is not so.
  void check_rows(const std::vector<Plan>& plans) const {
    std::string misfits;
    for (auto& p : plans) {
      if (p.type == kKeep) continue;
      try {
        auto& shape = p.source->shape;
        encoded_size(block_format(p.type), 1, shape.empty() ? 1 : shape.back(), p.source->name);
      } catch (const UserError& e) {
        misfits += (misfits.empty() ? "" : "; ") + std::string(e.what());
      }
    }
    if (!misfits.empty()) throw UserError(misfits + "; a rule can give a tensor a type of its own, or `keep` its own");
  }

  QuantizedTensor add(const Plan& plan) {
    const SourceTensor& t = *plan.source;
    QuantizedTensor row{.name = t.name, .from = t.type, .type = t.type, .shape = t.shape, .note = plan.note};
    bool same = t.gguf && plan.type != kKeep && t.format().id == block_format(plan.type).id;
    if (plan.type == kKeep || same)
      keep(t, row);
    else
      quantize(t, block_format(plan.type), row);
    return row;
  }

  void write(const std::string& path, const std::vector<QuantizedTensor>& rows) {
    set_keys(rows);
    writer_.write(path);
  }

 private:
  void keep(const SourceTensor& t, QuantizedTensor& row) {
    if (t.gguf) {
      writer_.add_encoded(t.name, t.shape, t.gguf->type, {t.gguf->bytes.begin(), t.gguf->bytes.end()});
      if (t.format().has_tensor_scale()) add_scale(t.name, t.tensor_scale);
      row.bytes = t.bytes();
      return;
    }
    for (auto& f : block_formats())
      if (!t.coded && t.code.empty() && f.dtype == t.array.dtype()) {
        writer_.add(t.name, t.array, f.id);
        row.type = f.name;
        row.bytes = t.bytes();
        return;
      }
    throw UserError(
        fmt::format("[quantize] tensor {}: a GGUF file cannot hold it as {}; a rule can give it another type",
                    in_quotes(t.name), t.type));
  }

  void quantize(const SourceTensor& t, const BlockFormat& format, QuantizedTensor& row) {
    Array wide = t.values().cast(DType::F32);
    if (auto scale = absorbed_.find(tensor_scale_name(t.name)); format.has_tensor_scale() && scale != absorbed_.end())
      for (float& v : wide.values<float>()) v *= scale->second;  // of a GGUF file: decoded, so not shared
    auto x = wide.values<float>();
    float scale = tensor_scale_of(format, x);
    auto bytes = encode(format, x, t.shape.empty() ? 1 : t.shape.back(), t.name, scale);
    std::vector<float> back(x.size());
    decode(format, bytes, back, t.name);
    if (scale != 1)
      for (float& v : back) v *= scale;
    check_finite(t, x, back, format.name, format.dtype != DType::Any);
    row.type = format.name;
    row.bytes = std::int64_t(bytes.size());
    row.clipped = clipped_in(format, x, bytes);
    measure(row, x, back, format.has_tensor_scale() ? 16 : format.elements);
    writer_.add_encoded(t.name, t.shape, format.id, std::move(bytes));
    if (!format.has_tensor_scale()) return;
    add_scale(t.name, scale);
    row.bytes += std::int64_t(sizeof scale);
  }
  void add_scale(const std::string& tensor, float scale) {
    writer_.add(tensor_scale_name(tensor), Array(std::vector<float>{scale}, {1}), block_format("F32").id);
  }

  void set_keys(const std::vector<QuantizedTensor>& rows) {
    constexpr const char *kFileType = "general.file_type", *kVersion = "general.quantization_version";
    if (source_.gguf)
      for (auto& [key, value] : source_.gguf->values())
        if (key != kFileType && key != kVersion) writer_.set(key, value);
    std::map<std::string, std::int64_t> elements;  // of matrices by type
    for (auto& r : rows)
      if (r.shape.size() >= 2) elements[r.type] += r.elements();
    auto most =
        std::max_element(elements.begin(), elements.end(), [](auto& a, auto& b) { return a.second < b.second; });
    if (most != elements.end())
      if (auto number = file_type_of(most->first)) writer_.set(kFileType, *number);
    writer_.set(kVersion, std::uint32_t(2));
  }

  const TensorSource& source_;
  GgufWriter writer_;
  std::map<std::string, float> absorbed_;
};

// ------------------------------------------------------------------------------------------------ safetensors

class SafetensorsOut {
 public:
  SafetensorsOut(const TensorSource& source, const QuantizeOptions& options) : source_(source), options_(options) {}

  QuantizedTensor add(const Plan& plan) {
    const SourceTensor& t = *plan.source;
    QuantizedTensor row{.name = t.name, .from = t.type, .type = t.type, .shape = t.shape, .note = plan.note};
    bool same = t.coded && plan.type != kKeep && t.coded->type == tensor_type(plan.type);
    if (plan.type == kKeep || same)
      keep(t, row);
    else
      quantize(t, tensor_type(plan.type), row);
    return row;
  }

  void write(const std::string& path) {
    auto metadata = source_.metadata;
    for (auto& [key, value] : options_.metadata) metadata[key] = value;
    if (!coded_.empty()) {
      std::vector<std::pair<std::string, const QuantizedArray*>> list;
      for (auto& [name, q] : coded_) list.emplace_back(name, &q);
      metadata[kQuantizedKey] = quantized_text(list);
    }
    save_safetensors(path, tensors_, metadata, formats_);
  }

 private:
  void put(const std::string& name, const Array& array, const std::string& code) {
    if (!tensors_.emplace(name, array).second)
      throw UserError(fmt::format("[quantize] two tensors would be named {}", in_quotes(name)));
    if (!code.empty()) formats_.emplace(name, code);
  }
  void put(const std::string& name, const QuantizedArray& q) {
    for (auto& part : parts_of(q.type, q.shape)) put(name + part.suffix, q.*part.array, part.code);
    if (q.type.kind != TensorType::Kind::Plain) coded_.emplace(name, q);
  }

  void keep(const SourceTensor& t, QuantizedTensor& row) {
    if (t.coded) {
      put(t.name, *t.coded);
      row.bytes = t.bytes();
      return;
    }
    if (t.gguf && t.format().dtype == DType::Any)
      throw UserError(
          fmt::format("[quantize] tensor {}: a safetensors file cannot hold it as {}; a rule can give it another type",
                      in_quotes(t.name), t.type));
    Array array = t.gguf ? t.values() : t.array;
    put(t.name, array, t.code);
    row.bytes = std::int64_t(array.byte_size());
  }

  void quantize(const SourceTensor& t, const TensorType& type, QuantizedTensor& row) {
    Array values = t.values();
    auto q = quantize_array(values, type, options_.mx_rule, t.name);
    put(t.name, q);
    row.type = type.name;
    row.bytes = q.bytes();
    row.clipped = q.clipped;
    Array before = values.cast(DType::F32), after = dequantize_array(q);
    check_finite(t, before.values<float>(), after.values<float>(), type.name.c_str(),
                 type.kind == TensorType::Kind::Plain);
    measure(row, before.values<float>(), after.values<float>(), block_size(type, t.shape.empty() ? 1 : t.shape.back()));
  }

  const TensorSource& source_;
  const QuantizeOptions& options_;
  Tensors tensors_;
  std::map<std::string, std::string> formats_;
  std::map<std::string, QuantizedArray> coded_;
};

// ------------------------------------------------------------------------------------------------ all of it

std::vector<QuantizedTensor> convert(TensorSource source, const std::string& out, const QuantizeOptions& options) {
  auto kind = kind_of(out);
  auto plans = make_plans(source, kind, options);
  std::vector<QuantizedTensor> rows;
  auto add_all = [&](auto& file) {
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (options.progress) options.progress(plans[i].source->name, i, plans.size());
      rows.push_back(file.add(plans[i]));
    }
  };
  if (kind == FileKind::Safetensors) {
    SafetensorsOut file(source, options);
    add_all(file);
    file.write(out);
    return rows;
  }
  GgufOut file(source);
  file.check_rows(plans);
  file.absorb_scales(plans);
  add_all(file);
  file.write(out, rows);
  return rows;
}

}  // namespace

std::vector<QuantizedTensor> quantize_file(const std::string& in, const std::string& out,
                                           const QuantizeOptions& options) {
  kind_of(out);
  return convert(open_tensors(in), out, options);
}

std::vector<QuantizedTensor> quantize_tensors(const Tensors& tensors, const std::string& out,
                                              const QuantizeOptions& options) {
  TensorSource source;
  for (auto& [name, array] : tensors)
    source.tensors.push_back({name, std::string(to_string(array.dtype())), array.shape(), array, {}, {}, {}});
  return convert(std::move(source), out, options);
}

}  // namespace rlx
