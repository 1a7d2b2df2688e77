// rlx eval: how well a model predicts a text.
#include <fmt/format.h>

#include "cli/command.h"
#include "rlx/train.h"
#include "train/data.h"

namespace rlx::cli {

void add_eval(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("eval", "Measure how well a model predicts a text");
  auto model = std::make_shared<std::string>(), data = std::make_shared<std::string>();
  command->add_option("model", *model, "A run's folder or an exported file")->required();
  command->add_option("--data", *data, "The text, UTF-8")->required();
  add_common_options(*command, context, true);
  command->callback([=, &context] {
    std::string text = read_text(*data);
    Evaluation e = LanguageModel::load(*model, context.target()).evaluate(text);
    if (context.json)
      print_json(Json{
          {"bits_per_byte", e.bits_per_byte}, {"perplexity", e.perplexity}, {"tokens", e.tokens}, {"bytes", e.bytes}});
    else
      print(fmt::format("{:.4f} bits per byte, perplexity {:.3f} over {} tokens ({} bytes)\n", e.bits_per_byte,
                        e.perplexity, e.tokens, e.bytes));
  });
}

}  // namespace rlx::cli
