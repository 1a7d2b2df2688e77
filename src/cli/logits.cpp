// rlx logits: what a model expects after each token of a text, for checking against other programs.
#include <fmt/format.h>

#include "cli/command.h"
#include "rlx/train.h"
#include "train/tokenizer.h"

namespace rlx::cli {

void add_logits(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("logits", "Write the logits of a text as .npy, f32 [tokens, vocab]");
  auto model = std::make_shared<std::string>(), text = std::make_shared<std::string>(),
       out = std::make_shared<std::string>();
  command->add_option("model", *model, "A run's folder or an exported file")->required();
  command->add_option("--text", *text, "The text")->required();
  command->add_option("-o,--out", *out, "The file to write")->required();
  add_common_options(*command, context, true);
  command->callback([=, &context] {
    if (text->empty()) throw UserError("[logits] the text is empty");
    LanguageModel lm = LanguageModel::load(*model, context.target());
    auto tokens = lm.tokenizer().encode(*text);
    Array logits = lm.logits(tokens);
    logits.save_npy(*out);
    if (context.json)
      print_json(Json{{"tokens", tokens}, {"file", *out}});
    else
      print(fmt::format("{}: {} for {} tokens\n", *out, to_string(logits.type()), tokens.size()));
  });
}

}  // namespace rlx::cli
