// rlx generate: text from a model, as it is made.
#include <fmt/format.h>

#include "cli/command.h"
#include "rlx/train.h"

namespace rlx::cli {

void add_generate(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("generate", "Continue a text");
  auto model = std::make_shared<std::string>(), prompt = std::make_shared<std::string>();
  auto options = std::make_shared<GenerateOptions>();
  command->add_option("model", *model, "A run's folder or an exported file")->required();
  command->add_option("--prompt", *prompt, "The text to continue")->required();
  command->add_option("-n,--tokens", options->tokens, "How many tokens")->capture_default_str();
  command->add_option("--temperature", options->temperature, "0 takes the likeliest token")->capture_default_str();
  command->add_option("--top-k", options->top_k, "Of the likeliest so many; 0: of all")->capture_default_str();
  command->add_option("--top-p", options->top_p, "Of the likeliest that reach this probability together")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Equal seeds give equal texts")->capture_default_str();
  add_common_options(*command, context, true);
  command->callback([=, &context] {
    LanguageModel lm = LanguageModel::load(*model, context.target());
    std::string text = *prompt;
    if (!context.json) print(text);
    Generation g = lm.generate(*prompt, *options, [&](std::string_view piece) {
      if (context.json)
        text += piece;
      else
        print(piece);
    });
    if (context.json)
      print_json(Json{
          {"text", text}, {"tokens", g.tokens}, {"prompt_tokens", g.prompt_tokens}, {"tokens_per_s", g.tokens_per_s}});
    else
      print("\n");
    if (!context.json)
      std::fputs(fmt::format("{} tokens, {:.1f} tokens/s\n", g.tokens.size(), g.tokens_per_s).c_str(), stderr);
  });
}

}  // namespace rlx::cli
