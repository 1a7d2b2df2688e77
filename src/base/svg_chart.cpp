// Line charts as SVG.
#include "base/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/utf8.h"
#include "rlx/base.h"

namespace rlx {
namespace {

constexpr double kWidth = 860, kPanelHeight = 250, kLeft = 72, kRight = 24, kTop = 52, kGap = 34, kBottom = 52;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr const char* kInk = "#1f2933";
constexpr const char* kMuted = "#66727f";
constexpr const char* kGrid = "#e3e8ed";

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void add(double v) {
    if (!std::isfinite(v)) return;
    low = std::min(low, v);
    high = std::max(high, v);
  }
  /// With room for a line that is level, or none at all.
  Range widened(double share) const {
    if (low > high) return {0, 1};
    double room = high > low ? (high - low) * share : std::max(std::abs(low) * 0.1, 0.5);
    return {low - room, high + room};
  }
};

std::string escape(std::string_view text) {
  std::string out;
  for (char c : text) switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  return out;
}

/// 12000 as 12k, 0.30000000000000004 as 0.3.
std::string tick_text(double v) {
  if (std::abs(v) >= 10000 && std::abs(v) < 1e6 && std::fmod(v, 100) == 0) return fmt::format("{:g}k", v / 1000);
  std::string text = fmt::format("{:.6g}", v);
  return text == "-0" ? "0" : text;
}

/// One panel's place on the page: data to pixels.
struct Frame {
  Range x, y;
  double top;
  double px(double v) const { return kLeft + (v - x.low) / (x.high - x.low) * kPlotWidth; }
  double py(double v) const { return top + kPanelHeight - (v - y.low) / (y.high - y.low) * kPanelHeight; }
};

/// The points to draw: where more than two share a pixel column, its lowest and highest.
std::vector<std::size_t> thinned(const ChartSeries& s, const Frame& frame) {
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < s.x.size();) {
    std::size_t low = i, high = i, end = i;
    double column = std::floor(frame.px(s.x[i]));
    for (; end < s.x.size() && std::isfinite(s.y[end]) && std::floor(frame.px(s.x[end])) == column; ++end) {
      if (s.y[end] < s.y[low]) low = end;
      if (s.y[end] > s.y[high]) high = end;
    }
    if (end == i) {  // not finite: kept, to break the line
      kept.push_back(i++);
      continue;
    }
    kept.push_back(std::min(low, high));
    if (low != high) kept.push_back(std::max(low, high));
    i = end;
  }
  return kept;
}

std::string draw_series(const ChartSeries& s, const Frame& frame) {
  if (s.x.size() != s.y.size())
    throw UserError(
        fmt::format("[chart] series \"{}\": got {} x and {} y, expected as many", s.label, s.x.size(), s.y.size()));
  std::string path, dots;
  bool pen_down = false;
  for (std::size_t i : thinned(s, frame)) {
    if (!std::isfinite(s.x[i]) || !std::isfinite(s.y[i])) {
      pen_down = false;
      continue;
    }
    double px = frame.px(s.x[i]), py = frame.py(s.y[i]);
    path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", px, py);
    if (s.markers)
      dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\" fill=\"{}\"/>\n", px, py, s.color);
    pen_down = true;
  }
  if (path.empty()) return "";
  return fmt::format(
             "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-opacity=\"{}\" "
             "stroke-linejoin=\"round\"/>\n",
             path, s.color, s.faint ? 1 : 2, s.faint ? 0.35 : 1) +
         dots;
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view color, std::string_view text,
                    std::string_view more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\"{}>{}</text>\n", x, y, anchor,
                     color, more, escape(text));
}

std::string draw_legend(const ChartPanel& panel, double top) {
  std::string out;
  double right = kWidth - kRight - 10;
  for (auto s = panel.series.rbegin(); s != panel.series.rend(); ++s) {
    if (s->label.empty()) continue;
    out += text_at(right, top + 18, "end", kInk, s->label);
    right -= 7.5 * double(count_characters(s->label)) + 12;
    out += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"{}\" "
        "stroke-opacity=\"{}\"/>\n",
        right - 20, top + 14, right, top + 14, s->color, s->faint ? 1 : 2.5, s->faint ? 0.5 : 1);
    right -= 40;
  }
  return out;
}

std::string draw_panel(const ChartPanel& panel, const Frame& frame, bool is_last) {
  double bottom = frame.top + kPanelHeight;
  std::string out;
  for (double tick : axis_ticks(frame.y.low, frame.y.high, 8)) {
    double y = frame.py(tick);
    out += fmt::format("<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", kLeft, y,
                       kWidth - kRight, y, kGrid);
    out += text_at(kLeft - 8, y + 4, "end", kMuted, tick_text(tick));
  }
  for (double tick : axis_ticks(frame.x.low, frame.x.high, 8)) {
    double x = frame.px(tick);
    out += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x, bottom, x,
                       bottom + 5, kMuted);
    if (is_last) out += text_at(x, bottom + 19, "middle", kMuted, tick_text(tick));
  }
  out += fmt::format("<path d=\"M{} {:.1f}V{:.1f}H{}\" fill=\"none\" stroke=\"{}\"/>\n", kLeft, frame.top, bottom,
                     kWidth - kRight, kMuted);
  for (const ChartSeries& s : panel.series) out += draw_series(s, frame);
  double middle = frame.top + kPanelHeight / 2;
  out +=
      text_at(18, middle, "middle", kInk, panel.y_label, fmt::format(" transform=\"rotate(-90 18 {:.1f})\"", middle));
  return out + draw_legend(panel, frame.top);
}

}  // namespace

std::vector<double> axis_ticks(double low, double high, int count) {
  if (!(high > low) || !std::isfinite(high - low) || count < 1) return {};
  double rough = (high - low) / count, power = std::pow(10, std::floor(std::log10(rough))), step = 10 * power;
  for (double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough * 0.999) {
      step = factor * power;
      break;
    }
  std::vector<double> ticks;
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + step * 1e-9; ++k) ticks.push_back(k * step);
  return ticks;
}

std::string to_svg(const Chart& chart) {
  Range x;
  for (auto& panel : chart.panels)
    for (auto& s : panel.series)
      for (double v : s.x) x.add(v);
  x = x.widened(0);
  if (x.low == x.high) x.high = x.low + 1;

  double height = kTop + double(chart.panels.size()) * (kPanelHeight + kGap) - kGap + kBottom;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"Helvetica, Arial, DejaVu Sans, sans-serif\" font-size=\"13\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
      kWidth, height);
  out += text_at(kLeft, 28, "start", kInk, chart.title, " font-size=\"17\" font-weight=\"bold\"");
  for (std::size_t i = 0; i < chart.panels.size(); ++i) {
    Range y;
    for (auto& s : chart.panels[i].series)
      for (double v : s.y) y.add(v);
    out += draw_panel(chart.panels[i], {x, y.widened(0.06), kTop + double(i) * (kPanelHeight + kGap)},
                      i + 1 == chart.panels.size());
  }
  out += text_at(kLeft + kPlotWidth / 2, height - 12, "middle", kInk, chart.x_label);
  return out + "</svg>\n";
}

}  // namespace rlx
