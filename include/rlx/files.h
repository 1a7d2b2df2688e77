// Model files: safetensors and GGUF, in and out. Everything in a file is checked before memory is touched.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <variant>

#include "rlx/graph.h"
#include "rlx/op_attrs.h"

namespace rlx {

class MappedFile;
/// Tensors by name.
using Tensors = std::map<std::string, Array, std::less<>>;

// ----------------------------------------------------------------------------------------------- safetensors

struct Safetensors {
  Tensors tensors;
  std::map<std::string, std::string> metadata;  // `__metadata__`
  /// Tensors of an 8-bit float type (F8_E4M3, …), which stand in `tensors` as u8 codes.
  std::map<std::string, std::string> formats;
};
/// Throws UserError on a malformed file, DeviceError where it cannot be read, Unsupported on a dtype RLX does not have.
/// Arrays share the mapped file where it is aligned for their dtype; writing to them does not change it.
Safetensors load_safetensors(const std::string& path);
/// Atomic; byte for byte as the format's own library writes. `formats` names the 8-bit float types of u8 codes. Throws
/// UserError, DeviceError.
void save_safetensors(const std::string& path, const Tensors& tensors,
                      const std::map<std::string, std::string>& metadata = {},
                      const std::map<std::string, std::string>& formats = {});

// ----------------------------------------------------------------------------------------------- GGUF

/// A value of a GGUF key: a number, a text, or an array of equal ones.
using GgufValue =
    std::variant<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t, float, bool,
                 std::string, std::uint64_t, std::int64_t, double, std::vector<std::uint8_t>, std::vector<std::int8_t>,
                 std::vector<std::uint16_t>, std::vector<std::int16_t>, std::vector<std::uint32_t>,
                 std::vector<std::int32_t>, std::vector<float>, std::vector<bool>, std::vector<std::string>,
                 std::vector<std::uint64_t>, std::vector<std::int64_t>, std::vector<double>>;
/// The value's type as GGUF names it: `u32`, `string`, `f32[]`, …
std::string gguf_kind(const GgufValue&);

/// A tensor type's name, such as `TQ2_0`; `type 99` where the number has none.
std::string gguf_type_name(std::uint32_t type);
/// The number of a type by its name, in either case. Throws UserError.
std::uint32_t gguf_type(std::string_view name);

struct GgufTensor {
  std::string name;
  std::uint32_t type = 0;
  Extents shape;  // row-major; the file holds its dims the other way round
  std::span<const std::byte> bytes;

  std::int64_t size() const { return count(shape); }
  /// F16, BF16, F32, F64 and ints in their own dtype, block types decoded to f32 (NVFP4 without its tensor scale, which
  /// is a tensor of its own). The array has its own memory.
  /// Throws Unsupported for a type that RLX cannot decode.
  Array to_array() const;
};

/// A GGUF file of version 2 or 3. Tensors refer to the mapped file, so they live no longer than this (or a copy of it).
class GgufFile {
 public:
  /// Throws UserError on a malformed file, DeviceError where it cannot be read.
  static GgufFile open(const std::string& path);

  const std::string& path() const { return path_; }
  /// Keys and values in the file's order.
  const std::vector<std::pair<std::string, GgufValue>>& values() const { return values_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// Null where the file has none of this name.
  const GgufValue* find(std::string_view key) const;
  const GgufTensor* find_tensor(std::string_view name) const;
  const GgufTensor& tensor(std::string_view name) const;  // throws UserError
  /// The value of a key of exactly this type. Throws UserError that names file, key, and both types.
  template <class T>
  const T& get(std::string_view key) const {
    auto v = find(key);
    if (!v || !std::holds_alternative<T>(*v)) wrong(key, v, gguf_kind(GgufValue(T{})));
    return std::get<T>(*v);
  }
  /// The value of a key of any integer type that fits, or any number type. Throws UserError.
  std::int64_t get_int(std::string_view key) const;
  double get_number(std::string_view key) const;

 private:
  friend class GgufReader;
  [[noreturn]] void wrong(std::string_view key, const GgufValue*, const std::string& expected) const;
  std::string path_;
  std::vector<std::pair<std::string, GgufValue>> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> value_index_, tensor_index_;
  std::shared_ptr<MappedFile> file_;
};

/// Collects keys and tensors and writes them as GGUF version 3. All throw UserError that names key or tensor.
class GgufWriter {
 public:
  /// Refuses an empty key and one that is already set.
  void set(std::string key, GgufValue value);
  /// Encodes `values` as `type` (any dtype that casts to f32; F16, BF16, F64 and ints of the same dtype keep their
  /// bytes). Refuses names over 63 bytes and of a tensor already there, ranks over 4, zero sizes, and rows (the last
  /// axis) that are no whole number of the type's blocks. NVFP4 adds its tensor scale as well, under the name with
  /// `.scale` for `.weight`.
  void add(std::string name, const Array& values, std::uint32_t type);
  /// Ternary codes (i8: -1, 0, 1) as TQ1_0 or TQ2_0, with one scale for all blocks or one for the blocks of each row.
  /// The scales are rounded to f16; refuses one that is infinite there, or 0 though it was not.
  void add_ternary(std::string name, const Array& codes, std::span<const float> scales, std::uint32_t type);
  /// Bytes that are already encoded.
  void add_encoded(std::string name, Extents shape, std::uint32_t type, std::vector<std::byte> bytes);
  /// Atomic. Honours `general.alignment` where it was set.
  void write(const std::string& path) const;

 private:
  struct Entry {
    std::string name;
    std::uint32_t type;
    Extents shape;
    std::vector<std::byte> bytes;
  };
  void check(const std::string& name, const Extents& shape, std::uint32_t type) const;
  std::vector<std::pair<std::string, GgufValue>> values_;
  std::vector<Entry> tensors_;
};

// ---------------------------------------------------------------------------------------------- quantised files

/// What the tensors become whose names match a glob pattern: `*`, `?`, `[...]`.
struct QuantizeRule {
  std::string pattern, type;
};
struct QuantizeOptions {
  /// Of the float tensors of two or more axes, by name (docs/quantize.md); the others keep theirs, as all do where this is
  /// empty. A rule's type may be `keep`.
  std::string type;
  std::vector<QuantizeRule> rules;  // of those that match a tensor the last counts
  MxRule mx_rule = MxRule::Ceil;    // of the scales of mx types in safetensors files
  std::map<std::string, std::string> metadata;  // more keys for a safetensors file
  /// Called before each tensor with its name and place.
  std::function<void(const std::string& tensor, std::size_t index, std::size_t count)> progress;
};
struct QuantizedTensor {
  std::string name, from, type;
  Extents shape;
  std::int64_t bytes = 0;  // with its scales
  double rms_error = 0, max_error = 0;
  std::int64_t flushed = 0;  // blocks of one scale that held a value other than 0 and now hold none
  std::int64_t clipped = 0;  // values beyond the largest that their scale can hold
  std::string note;          // why it kept its type, or where blocks were flushed

  std::int64_t elements() const { return count(shape); }
  double bits_per_weight() const { return elements() ? 8.0 * double(bytes) / double(elements()) : 0; }
};
/// Converts the tensors of a safetensors or GGUF file and writes them in the format that the ending of `out` names, with the
/// keys of a GGUF file where both are one. Throws UserError and writes nothing where something asked for cannot be done: a
/// type that the file's format does not have, a rule without effect, a row that is no whole number of blocks, a value that
/// the type cannot hold.
std::vector<QuantizedTensor> quantize_file(const std::string& in, const std::string& out, const QuantizeOptions&);
/// The same of tensors in memory.
std::vector<QuantizedTensor> quantize_tensors(const Tensors&, const std::string& out, const QuantizeOptions&);
/// The values of a safetensors or GGUF file: floats of 16 bits and more and integers as they are, what is quantised as f32,
/// scales applied and not listed. Throws UserError, DeviceError; Unsupported for a type that RLX cannot read.
Tensors load_values(const std::string& path);

// ---------------------------------------------------------------------------------------------- saved graphs

/// A graph and the values of its params.
struct SavedGraph {
  Graph graph;
  Tensors params;
};
/// The graph's text at `path`, the params beside it at `path` + ".safetensors", each written atomically, the params first.
/// Throws UserError where a param has no value, or one of another type, or a value has no param.
void save_graph(const SavedGraph& saved, const std::string& path);
/// Reads both back; a graph without params needs no second file. Throws UserError on what does not fit together.
SavedGraph load_graph(const std::string& path);

}  // namespace rlx
