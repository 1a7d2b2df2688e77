// Line charts as SVG: panels one above the other over a common x axis.
#pragma once
#include <string>
#include <vector>

namespace rlx {

struct ChartSeries {
  std::string label;  // in the legend; none where empty
  std::string color;  // as SVG writes it
  std::vector<double> x, y;
  bool faint = false;    // drawn thin and pale, as the raw form of a smoothed series
  bool markers = false;  // a dot on each point
};
struct ChartPanel {
  std::string y_label;
  std::vector<ChartSeries> series;
};
struct Chart {
  std::string title, x_label;
  std::vector<ChartPanel> panels;
};

/// An SVG document. Points that are not finite are left out and break their line; long series are thinned to what the
/// width can show, their extremes kept. Throws UserError where a series has not as many x as y.
std::string to_svg(const Chart& chart);

/// Round numbers, about `count` of them, that cover [low, high] at a step of 1, 2 or 5 times a power of ten.
std::vector<double> axis_ticks(double low, double high, int count);

}  // namespace rlx
