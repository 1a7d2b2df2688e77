// rlx inspect: what is in a file or a run.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/table.h"
#include "cli/command.h"
#include "files/tensor_source.h"
#include "quant/block_format.h"
#include "rlx/files.h"
#include "rlx/op_def.h"
#include "rlx/train.h"
#include "train/checkpoint.h"

namespace rlx::cli {
namespace {

struct Row {
  std::string name, type;
  std::string shape;
  std::int64_t elements = 0, bytes = 0;
};

// The tensors with their totals, as JSON and as a table. Scales beside weights are no parameters of their own.
void add_tensors(Json& object, std::string& text, const std::vector<Row>& rows) {
  Table table({"tensor", "type", "shape", "bytes", "bits per weight"});
  Json tensors = Json::array();
  std::int64_t params = 0, bytes = 0;
  for (auto& r : rows) {
    double bits = r.elements ? 8.0 * double(r.bytes) / double(r.elements) : 0;
    if (!r.name.ends_with(".scale")) params += r.elements;
    bytes += r.bytes;
    tensors.push_back(
        {{"name", r.name}, {"type", r.type}, {"shape", r.shape}, {"bytes", r.bytes}, {"bits_per_weight", bits}});
    table.add_row({r.name, r.type, r.shape, fmt::to_string(r.bytes), fmt::format("{:.3f}", bits)});
  }
  double bits = params ? 8.0 * double(bytes) / double(params) : 0;
  object["params"] = params;
  object["bytes"] = bytes;
  object["bits_per_weight"] = bits;
  object["tensors"] = tensors;
  if (!rows.empty()) text += table.text();
  text += fmt::format("{} parameters in {} bytes, {:.3f} bits per weight\n", params, bytes, bits);
}

std::vector<Row> rows_of(const Tensors& tensors) {
  std::vector<Row> rows;
  for (auto& [name, value] : tensors)
    rows.push_back({name, std::string(to_string(value.dtype())), to_string(value.shape()), value.size(),
                    std::int64_t(value.byte_size())});
  return rows;
}

Json value_json(const GgufValue& value) {
  return std::visit(
      [](auto& v) -> Json {
        if constexpr (requires {
                        v.size();
                        v.begin();
                      } &&
                      !std::is_same_v<std::decay_t<decltype(v)>, std::string>)
          return fmt::format("{} values", v.size());
        else
          return v;
      },
      value);
}

void inspect_gguf(const std::string& path, Json& object, std::string& text) {
  GgufFile file = GgufFile::open(path);
  Json keys = Json::object();
  for (auto& [key, value] : file.values()) {
    keys[key] = value_json(value);
    text += fmt::format("{} ({}) = {}\n", key, gguf_kind(value),
                        keys[key].dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  object["keys"] = keys;
  std::vector<Row> rows;
  for (auto& t : file.tensors())
    rows.push_back({t.name, gguf_type_name(t.type), to_string(t.shape), t.size(), std::int64_t(t.bytes.size())});
  add_tensors(object, text, rows);
}

void inspect_safetensors(const std::string& path, Json& object, std::string& text) {
  TensorSource file = open_tensors(path);
  if (!file.metadata.empty()) object["metadata"] = file.metadata;
  constexpr std::size_t kShown = 1000;  // a tokenizer would fill the screen
  for (auto& [key, value] : file.metadata)
    text += value.size() <= kShown ? fmt::format("{} = {}\n", key, value)
                                   : fmt::format("{}: {} bytes\n", key, value.size());
  std::vector<Row> rows;
  for (auto& t : file.tensors) rows.push_back({t.name, t.type, to_string(t.shape), count(t.shape), t.bytes()});
  add_tensors(object, text, rows);
}

void inspect_run(const std::string& path, Json& object, std::string& text) {
  auto folder = find_checkpoint(path);
  if (!is_run(path)) throw UserError(fmt::format("[inspect] '{}' is no run: it has no run.json", path));
  if (!folder) throw UserError(fmt::format("[inspect] the run '{}' has no checkpoint yet", path));
  Checkpoint c = load_checkpoint(*folder);
  object["checkpoint"] = *folder;
  object["step"] = c.step;
  object["steps"] = c.steps;
  object["config"] = Json::parse(config_json(c.config));
  text += fmt::format("step {} of {}, {}, {}\n", c.step, c.steps, c.config.optimizer, c.config.model.precision);
  add_tensors(object, text, rows_of(c.weights));
}

void inspect_graph(const std::string& path, Json& object, std::string& text) {
  Graph graph = Graph::parse(read_file(path));
  std::map<std::string, std::int64_t> ops;
  for (int i = 0; i < graph.size(); ++i) ++ops[std::string(graph.node(i).op().name)];
  object["nodes"] = graph.size();
  object["ops"] = ops;
  auto leaves = [&](const char* key, const Nodes& nodes) {
    Json list = Json::array();
    for (Node n : nodes) {
      list.push_back({{"name", n.name()}, {"type", to_string(n.type())}});
      text += fmt::format("{} {} {}\n", key, n.name().empty() ? n.text() : n.name(), to_string(n.type()));
    }
    object[std::string(key) + "s"] = list;
  };
  leaves("input", graph.inputs());
  leaves("output", graph.outputs());
  for (auto& [name, count] : ops) text += fmt::format("{:6} {}\n", count, name);
  std::vector<Row> rows;
  for (Node p : graph.params()) {
    bool known = is_static(p.shape());
    std::int64_t n = known ? count(to_extents(p.shape())) : 0;
    rows.push_back(
        {p.name(), std::string(to_string(p.dtype())), to_string(p.shape()), n, n * std::int64_t(size_of(p.dtype()))});
  }
  add_tensors(object, text, rows);
}

void inspect_npy(const std::string& path, Json& object, std::string& text) {
  Array a = Array::load_npy(path);
  object["dtype"] = to_string(a.dtype());
  object["shape"] = a.shape();
  text += fmt::format("{}, {} elements\n", to_string(a.type()), a.size());
  if (a.size() == 0 || a.dtype() == DType::C64) return;
  double low = a.at(0), high = low, total = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    low = std::min(low, a.at(i)), high = std::max(high, a.at(i));
    total += a.at(i);
  }
  object["min"] = low, object["max"] = high, object["mean"] = total / double(a.size());
  text += fmt::format("min {:.6g}, max {:.6g}, mean {:.6g}\n", low, high, total / double(a.size()));
}

// By the folder, the first bytes or the ending.
std::string kind_of(const std::string& path) {
  if (std::filesystem::is_directory(path)) return "run";
  char head[6] = {};
  std::ifstream(path, std::ios::binary).read(head, sizeof head);
  std::string_view magic(head, sizeof head);
  if (magic.starts_with("GGUF") || path.ends_with(".gguf")) return "gguf";
  if (magic == "\x93NUMPY" || path.ends_with(".npy")) return "npy";
  if (path.ends_with(".safetensors")) return "safetensors";
  return "graph";
}

}  // namespace

void add_inspect(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("inspect", "Show what is in a graph, safetensors, GGUF or .npy file, or a run");
  auto path = std::make_shared<std::string>();
  command->add_option("file", *path, "The file or the run's folder")->required();
  add_common_options(*command, context, false);
  command->callback([=, &context] {
    std::string kind = kind_of(*path), text;
    Json object = {{"file", *path}, {"kind", kind}};
    auto inspect = kind == "run"           ? inspect_run
                   : kind == "gguf"        ? inspect_gguf
                   : kind == "npy"         ? inspect_npy
                   : kind == "safetensors" ? inspect_safetensors
                                           : inspect_graph;
    inspect(*path, object, text);
    if (context.json)
      print_json(object);
    else
      print(text);
  });
}

}  // namespace rlx::cli
