// Charts: ticks, what is drawn, what is left out.
#include "base/svg_chart.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rlx/base.h"
#include "train/loss_chart.h"

namespace rlx {
namespace {

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(SvgChart, TicksAreRound) {
  EXPECT_EQ(axis_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_ticks(1.3, 3.9, 5), (std::vector<double>{2, 3}));
  EXPECT_EQ(axis_ticks(-0.1, 0.12, 4), (std::vector<double>{-0.1, 0, 0.1}));
  EXPECT_TRUE(axis_ticks(1, 1, 5).empty());
}

TEST(SvgChart, LongSeriesAreThinnedAndKeepTheirExtremes) {
  ChartSeries s{.label = "s", .color = "red", .x = {}, .y = {}};
  for (int i = 0; i < 200000; ++i) {
    s.x.push_back(i);
    s.y.push_back(i == 77777 ? 50 : std::sin(i));
  }
  std::string svg = to_svg({"title", "x", {{"y", {s}}}});
  EXPECT_LT(svg.size(), 60000u);
  EXPECT_NE(svg.find(">50<"), std::string::npos);  // the spike sets the axis
}

TEST(SvgChart, PointsThatAreNotFiniteBreakTheLine) {
  ChartSeries s{.label = "", .color = "red", .x = {0, 1, 2, 3, 4}, .y = {1, 2, std::nan(""), 3, INFINITY}};
  std::string svg = to_svg({"", "", {{"", {s}}}});
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  std::string path = svg.substr(svg.find("<path d=\"M", svg.find("</text>")));
  EXPECT_NE(svg.find("stroke=\"red\""), std::string::npos);
  std::size_t end = svg.find("\" fill=\"none\" stroke=\"red\""), begin = svg.rfind("d=\"", end);
  EXPECT_EQ(occurrences(svg.substr(begin, end - begin), "M"), 2u);
}

TEST(SvgChart, TextIsEscaped) {
  EXPECT_NE(to_svg({"a<b & \"c\"", "x", {}}).find("a&lt;b &amp; &quot;c&quot;"), std::string::npos);
}

TEST(SvgChart, NothingToDrawIsStillAChart) {
  for (auto& y : std::vector<std::vector<double>>{{}, {3}, {3, 3}}) {
    ChartSeries s{.label = "s", .color = "red", .x = std::vector<double>(y.size(), 1), .y = y};
    std::string svg = to_svg({"", "", {{"y", {s}}}});
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
  }
}

TEST(SvgChart, SeriesHaveAsManyXAsY) {
  EXPECT_THROW(to_svg({"", "", {{"", {{.label = "s", .color = "red", .x = {1}, .y = {1, 2}}}}}}), UserError);
}

TEST(LossChart, ShowsValidationWhereItWasMeasured) {
  std::vector<LossPoint> points = {{0, 7.5, {}}, {1, 6, 2.5}, {2, 5, {}}, {3, 4, 2.0}};
  std::string svg = loss_chart(points, "run");
  EXPECT_EQ(occurrences(svg, "<circle"), 2u);
  EXPECT_NE(svg.find("validation (bits per byte)"), std::string::npos);
  points = {{0, 7.5, {}}};
  EXPECT_EQ(loss_chart(points, "run").find("validation"), std::string::npos);
}

}  // namespace
}  // namespace rlx
