// Names from files, made safe for messages.
#pragma once
#include <string>
#include <string_view>

namespace rlx {

/// `name` in double quotes, with control bytes as \xNN, shortened to about `limit` bytes.
std::string in_quotes(std::string_view name, std::size_t limit = 100);
bool is_utf8(std::string_view text);

}  // namespace rlx
