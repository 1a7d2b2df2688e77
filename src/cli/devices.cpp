// rlx devices: where graphs can run here.
#include <fmt/format.h>

#include <fstream>
#include <set>
#include <sstream>

#include "base/parallel.h"
#include "cli/command.h"

namespace rlx::cli {
namespace {

struct Cpu {
  std::string model;
  std::vector<std::string> features;
};

Cpu cpu() {
  static constexpr const char* kFeatures[] = {"avx",         "fma",      "f16c",     "avx2",        "avx_vnni",
                                              "avx512f",     "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
                                              "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"};
  Cpu out;
  std::set<std::string> flags;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && (out.model.empty() || flags.empty());) {
    auto at = line.find(": ");
    if (at == std::string::npos) continue;
    std::istringstream words(line.substr(at + 2));
    if (line.starts_with("model name")) out.model = words.str();
    if (line.starts_with("flags"))
      for (std::string word; words >> word;) flags.insert(word);
  }
  for (auto feature : kFeatures)
    if (flags.contains(feature)) out.features.push_back(feature);
  return out;
}

}  // namespace

void add_devices(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("devices", "List the devices and what the CPU has");
  add_common_options(*command, context, false);
  command->callback([&context] {
    Cpu c = cpu();
    Json names = Json::array();
    std::string text;
    for (auto& device : devices()) {
      names.push_back(device.name);
      text += device.name + "\n";
    }
    text += fmt::format("CPU: {}, {} threads: {}\n", c.model, num_threads(), fmt::join(c.features, " "));
    if (context.json)
      print_json(Json{{"devices", names},
                      {"cpu", {{"model", c.model}, {"threads", num_threads()}, {"features", c.features}}}});
    else
      print(text);
  });
}

}  // namespace rlx::cli
