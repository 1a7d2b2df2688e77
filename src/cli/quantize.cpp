// rlx quantize: a safetensors or GGUF file with its tensors in other types.
#include <fmt/format.h>

#include "base/progress.h"
#include "base/table.h"
#include "cli/command.h"
#include "rlx/files.h"

namespace rlx::cli {
namespace {

QuantizeRule rule_of(const std::string& text) {
  auto at = text.rfind('=');
  return {text.substr(0, at), text.substr(at + 1)};
}
std::string check_rule(const std::string& text) {
  auto at = text.rfind('=');
  bool good = at != text.npos && at > 0 && at + 1 < text.size();
  return good ? "" : fmt::format("--rule: got '{}', expected PATTERN=TYPE", text);
}

void report(const Context& context, const std::string& out, const std::vector<QuantizedTensor>& rows) {
  Table table(
      {"tensor", "from", "type", "bytes", "bits per weight", "rms error", "max error", "flushed", "clipped", "note"});
  Json tensors = Json::array();
  std::int64_t elements = 0, bytes = 0, flushed = 0, clipped = 0;
  for (auto& r : rows) {
    elements += r.elements(), bytes += r.bytes, flushed += r.flushed, clipped += r.clipped;
    table.add_row({r.name, r.from, r.type, fmt::to_string(r.bytes), fmt::format("{:.3f}", r.bits_per_weight()),
                   fmt::format("{:.3g}", r.rms_error), fmt::format("{:.3g}", r.max_error), fmt::to_string(r.flushed),
                   fmt::to_string(r.clipped), r.note});
    tensors.push_back({{"name", r.name},
                       {"from", r.from},
                       {"type", r.type},
                       {"shape", r.shape},
                       {"bytes", r.bytes},
                       {"bits_per_weight", r.bits_per_weight()},
                       {"rms_error", r.rms_error},
                       {"max_error", r.max_error},
                       {"flushed_blocks", r.flushed},
                       {"clipped_values", r.clipped},
                       {"note", r.note}});
  }
  double bits = elements ? 8.0 * double(bytes) / double(elements) : 0;
  if (context.json)
    return print_json(Json{{"file", out},
                           {"elements", elements},
                           {"bytes", bytes},
                           {"bits_per_weight", bits},
                           {"flushed_blocks", flushed},
                           {"clipped_values", clipped},
                           {"tensors", tensors}});
  print(table.text() +
        fmt::format("{}: {} values in {} bytes, {:.3f} bits each; {} blocks flushed, {} values clipped\n", out,
                    elements, bytes, bits, flushed, clipped));
}

}  // namespace

void add_quantize(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("quantize", "Convert a safetensors or GGUF file to other types");
  auto in = std::make_shared<std::string>(), out = std::make_shared<std::string>();
  auto rules = std::make_shared<std::vector<std::string>>();
  auto options = std::make_shared<QuantizeOptions>();
  command->add_option("file", *in, "A safetensors or GGUF file")->required();
  command->add_option("-o,--out", *out, "The file to write, .safetensors or .gguf")->required();
  command->add_option("--type", options->type, "Of float tensors of two or more axes: see docs/quantize.md");
  command
      ->add_option(
          "--rule", *rules,
          "PATTERN=TYPE: the type of the tensors whose names match a glob pattern, or keep; of several the last "
          "one that matches counts")
      ->expected(1)
      ->take_all()
      ->check(check_rule);
  command
      ->add_option_function<std::string>(
          "--mx-rule",
          [=](const std::string& rule) { options->mx_rule = rule == "floor" ? MxRule::Floor : MxRule::Ceil; },
          "How scales of mx types follow from a block: ceil, so that nothing is clipped, or floor, as OCP has it")
      ->check(CLI::IsMember({"ceil", "floor"}));
  add_common_options(*command, context, false);
  command->callback([=, &context] {
    for (auto& r : *rules) options->rules.push_back(rule_of(r));
    Progress progress;
    options->progress = [&](const std::string& tensor, std::size_t i, std::size_t n) {
      if (progress.is_due()) progress.update(fmt::format("{} of {}: {}", i + 1, n, tensor));
    };
    auto rows = quantize_file(*in, *out, *options);
    progress.finish();
    report(context, *out, rows);
  });
}

}  // namespace rlx::cli
