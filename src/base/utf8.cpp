// Reading UTF-8.
#include "base/utf8.h"

namespace rlx {

std::size_t utf8_length(std::string_view text, std::size_t at) {
  auto byte = [&](std::size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  unsigned lead = byte(0), low = 0x80, high = 0xbf;
  if (at < text.size() && lead < 0x80) return 1;
  std::size_t length = lead >= 0xc2 && lead <= 0xdf   ? 2
                       : (lead & 0xf0) == 0xe0        ? 3
                       : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                      : 0;
  if (lead == 0xe0) low = 0xa0;   // shorter forms exist
  if (lead == 0xed) high = 0x9f;  // surrogates
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;  // above U+10FFFF
  if (length == 0 || byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  return length;
}

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = utf8_length(text, at);
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) {
    std::size_t length = utf8_length(text, at);
    at += length ? length : 1;
  }
  return count;
}

}  // namespace rlx
