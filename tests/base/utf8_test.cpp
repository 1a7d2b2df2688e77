// Well-formed UTF-8 as the Unicode standard's table 3-7 draws the line.
#include "base/utf8.h"

#include <gtest/gtest.h>

namespace rlx {
namespace {

TEST(Utf8, WellFormed) {
  for (const char* text : {"", "ascii", "é", "\u0800", "\uffff", "\U00010000", "\U0010ffff", "\ud7ff\ue000"})
    EXPECT_EQ(find_invalid_utf8(text), std::string_view::npos) << text;
}

TEST(Utf8, IllFormed) {
  EXPECT_EQ(find_invalid_utf8("ab\x80"), 2u);  // a continuation byte alone
  EXPECT_EQ(find_invalid_utf8("ab\xc3"), 2u);  // cut short
  EXPECT_EQ(find_invalid_utf8("\xe2\x82"), 0u);
  EXPECT_EQ(find_invalid_utf8("\xf0\x9f\x99"), 0u);
  EXPECT_EQ(find_invalid_utf8("\xc0\xaf"), 0u);  // longer than needed
  EXPECT_EQ(find_invalid_utf8("\xe0\x9f\xbf"), 0u);
  EXPECT_EQ(find_invalid_utf8("\xf0\x8f\xbf\xbf"), 0u);
  EXPECT_EQ(find_invalid_utf8("\xed\xa0\x80"), 0u);      // a surrogate
  EXPECT_EQ(find_invalid_utf8("\xf4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("\xf5\x80\x80\x80"), 0u);
  EXPECT_EQ(find_invalid_utf8("x\xff"), 1u);
}

TEST(Utf8, CountsCharacters) {
  EXPECT_EQ(count_characters("naïve"), 5u);
  EXPECT_EQ(count_characters("a\xff"
                             "b"),
            3u);
}

}  // namespace
}  // namespace rlx
