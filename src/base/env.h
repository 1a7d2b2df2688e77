// The environment variables that RLX reads: each is a row of one table, from which docs/env.md is written.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace rlx {

struct EnvVariable {
  std::string_view name, unset, doc;  // unset: what holds where it is not set, in words
};
std::span<const EnvVariable> env_variables();
/// Its value, "" where it is not set; read anew at each call. Throws InternalError on a name that is not in the table.
std::string env(std::string_view name);
/// RLX_DEBUG; throws UserError where it is not a number from 0 to 6.
int debug_level();
/// docs/env.md.
std::string env_markdown();

}  // namespace rlx
