#include "base/text.h"

#include <fmt/core.h>

namespace rlx {
namespace {

// The bytes of the UTF-8 character at the start of `s`, 0 where there is none.
std::size_t character_length(std::string_view s) {
  auto byte = [&](std::size_t i) { return i < s.size() ? unsigned(static_cast<unsigned char>(s[i])) : 0u; };
  auto follows = [&](std::size_t i) { return (byte(i) & 0xc0) == 0x80; };
  unsigned b = byte(0);
  if (b < 0x80) return 1;
  if (b >= 0xc2 && b < 0xe0) return follows(1) ? 2 : 0;
  if (b >= 0xe0 && b < 0xf0) {
    bool overlong = b == 0xe0 && byte(1) < 0xa0, surrogate = b == 0xed && byte(1) >= 0xa0;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (b >= 0xf0 && b < 0xf5) {
    bool overlong = b == 0xf0 && byte(1) < 0x90, beyond = b == 0xf4 && byte(1) >= 0x90;
    return follows(1) && follows(2) && follows(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    auto n = character_length(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

std::string in_quotes(std::string_view name, std::size_t limit) {
  std::string out = "\"";
  for (std::size_t i = 0; i < name.size();) {
    if (i >= limit) return out + fmt::format("…\" ({} bytes)", name.size());
    auto n = character_length(name.substr(i));
    auto c = static_cast<unsigned char>(name[i]);
    if (n == 0 || c < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", c);
      n = 1;
    } else {
      out += name.substr(i, n);
    }
    i += n;
  }
  return out + "\"";
}

}  // namespace rlx
