// rlx export: a run as one file.
#include <fmt/format.h>

#include "base/table.h"
#include "cli/command.h"
#include "rlx/train.h"
#include "train/precision.h"

namespace rlx::cli {

void add_export(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand(
      "export", "Write a model as one file: GGUF for llama.cpp where it has the type, else safetensors");
  auto model = std::make_shared<std::string>(), out = std::make_shared<std::string>();
  auto options = std::make_shared<ExportOptions>();
  command->add_option("model", *model, "A run's folder or an exported file")->required();
  command->add_option("-o,--out", *out, "The file to write")->required();
  std::set<std::string> types;
  for (auto& p : precisions()) types.insert(p.file_types.begin(), p.file_types.end());
  command->add_option("--type", options->type, "Of the blocks' weights; by default what the model was trained in")
      ->check(CLI::IsMember(types));
  command
      ->add_option("--embedding", options->embedding,
                   "Of the token embedding; by default q8_0 beside ternary weights, else f32")
      ->check(CLI::IsMember({"f16", "bf16", "q8_0", "f32"}));
  add_common_options(*command, context, false);
  command->callback([=, &context] {
    auto rows = export_model(LanguageModel::load(*model), *out, *options);
    std::int64_t elements = 0, bytes = 0;
    Json tensors = Json::array();
    Table table({"tensor", "type", "bytes", "bits per weight", "max error"});
    for (auto& r : rows) {
      elements += r.params;
      bytes += r.bytes;
      tensors.push_back({{"name", r.name},
                         {"type", r.type},
                         {"bytes", r.bytes},
                         {"bits_per_weight", r.bits_per_weight()},
                         {"max_error", r.max_error}});
      table.add_row({r.name, r.type, fmt::to_string(r.bytes), fmt::format("{:.3f}", r.bits_per_weight()),
                     fmt::format("{:.3g}", r.max_error)});
    }
    double bits = 8.0 * double(bytes) / double(elements);
    if (context.json)
      print_json(Json{
          {"file", *out}, {"params", elements}, {"bytes", bytes}, {"bits_per_weight", bits}, {"tensors", tensors}});
    else
      print(table.text() +
            fmt::format("{}: {} parameters in {} bytes, {:.3f} bits per weight\n", *out, elements, bytes, bits));
  });
}

}  // namespace rlx::cli
