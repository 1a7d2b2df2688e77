// rlx version: of the program and of what it is made from.
#include <dnnl_version.h>
#include <fmt/format.h>

#include "cli/command.h"

namespace rlx::cli {

void add_version(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("version", "Show the version");
  auto verbose = std::make_shared<bool>(false);
  command->add_flag("-v,--verbose", *verbose, "The libraries too");
  add_common_options(*command, context, false);
  command->callback([=, &context] {
    Json object = {{"version", RLX_VERSION}};
    std::string text = fmt::format("rlx {}\n", RLX_VERSION);
    if (*verbose) {
      Json libraries = {
          {"compiler", fmt::format("g++ {}", __VERSION__)},
          {"oneDNN", fmt::format("{}.{}.{}", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH)},
          {"SentencePiece", SENTENCEPIECE_VERSION},
          {"CLI11", CLI11_VERSION},
          {"nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                                        NLOHMANN_JSON_VERSION_PATCH)},
          {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)}};
      for (auto& [name, version] : libraries.items()) text += fmt::format("{} {}\n", name, version.get<std::string>());
      object["libraries"] = libraries;
    }
    if (context.json)
      print_json(object);
    else
      print(text);
  });
}

}  // namespace rlx::cli
