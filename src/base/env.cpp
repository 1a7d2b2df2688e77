#include "base/env.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "rlx/base.h"

namespace rlx {

std::span<const EnvVariable> env_variables() {
  static constexpr EnvVariable kVariables[] = {
      {"RLX_DEBUG", "0",
       "What RLX prints to stderr; each level prints the ones below it too. 1: the backend, and which nodes it runs "
       "itself "
       "and which the interpreter runs. 2: the time of each kernel. 3: the graph after each pass that changed it, and "
       "the "
       "time of each pass. 4: the source of kernels. 5: how often each rule fired. 6: compiler IR."},
      {"RLX_DUMP", "nothing is written",
       "A folder into which the graph is written as text after each pass that changed it."},
      {"RLX_NUM_THREADS", "the smaller of the affinity mask and the cgroup quota",
       "How many threads RLX uses at most, 1 or more."},
      {"RLX_CPU_ISA", "what the CPU has",
       "The widest instruction set that CPU kernels may use: `portable`, `avx2` or `avx512`. Results are the same to "
       "the "
       "bit where the docs say so."},
  };
  return kVariables;
}

std::string env(std::string_view name) {
  auto all = env_variables();
  if (std::ranges::find(all, name, &EnvVariable::name) == all.end())
    throw InternalError(fmt::format("env: {} is not in the table", name));
  const char* value = std::getenv(std::string(name).c_str());
  return value ? value : "";
}

int debug_level() {
  std::string text = env("RLX_DEBUG");
  if (text.empty()) return 0;
  if (text.size() != 1 || text[0] < '0' || text[0] > '6')
    throw UserError(fmt::format("RLX_DEBUG: got \"{}\", expected a number from 0 to 6", text));
  return text[0] - '0';
}

std::string env_markdown() {
  std::string out =
      "# Environment variables\n\nWritten from the table in `src/base/env.cpp` by `rlx_table --env`; a test checks "
      "that it is "
      "current.\n\n| variable | where it is not set | what it does |\n|---|---|---|\n";
  for (auto& v : env_variables()) out += fmt::format("| `{}` | {} | {} |\n", v.name, v.unset, v.doc);
  return out;
}

}  // namespace rlx
