// Curves over iterations, and charts (uPlot) of several curves.
import { colour, number } from "./dom.js";

const LEGEND = 28; // height of one line, pixels

/** Growing columns of numbers; point p covers `width` iterations from p * width on. */
export class Curve {
  constructor() {
    this.width = 1;
    this.length = 0;
    this.columns = new Map();
  }

  /** Replace all points from `start` on. */
  take({ start, width, columns }) {
    this.width = width;
    if (start === 0) this.columns.clear();
    this.length = Math.max(start, ...Object.values(columns).map((values) => start + values.length));
    for (const [name, values] of Object.entries(columns)) {
      const kept = (this.columns.get(name) ?? []).slice(0, start);
      while (kept.length < start) kept.push(null);
      this.columns.set(name, kept.concat(values));
    }
  }

  get iterations() {
    return Array.from({ length: this.length }, (_, point) => point * this.width);
  }

  values(name) {
    return this.columns.get(name) ?? Array(this.length).fill(null);
  }
}

/** Means over the last `window` iterations, skipping gaps. */
export function smooth(values, window) {
  const means = Array(values.length).fill(null);
  let sum = 0, count = 0;
  for (let last = 0; last < values.length; last++) {
    if (values[last] != null) { sum += values[last]; count += 1; }
    const gone = last - window;
    if (gone >= 0 && values[gone] != null) { sum -= values[gone]; count -= 1; }
    if (count > 0 && values[last] != null) means[last] = sum / count;
  }
  return means;
}

/** Evaluations as dots of a chart: the middle, and [iteration, low, high] of each. */
export function dots(curve, evaluations, column) {
  const values = Array(curve.length).fill(null), bounds = [];
  for (const { iteration, [column]: [mean, low, high] } of evaluations) {
    const point = Math.floor(iteration / curve.width);
    if (point >= curve.length) continue;
    values[point] = mean;
    bounds.push([point * curve.width, low, high]);
  }
  return { curve, values, bounds };
}

/** Common iterations of lines, and their values; fast if their points are equally wide. */
function aligned(lines) {
  const longest = lines.reduce((most, { curve }) => (curve.length > most.length ? curve : most), lines[0].curve);
  if (lines.some(({ curve }) => curve.width !== longest.width)) {
    return uPlot.join(lines.map(({ curve, values }) => [curve.iterations, values]));
  }
  const padded = ({ values }) => values.concat(Array(longest.length - values.length).fill(null));
  return [longest.iterations, ...lines.map(padded)];
}

/** Draw intervals below their dots. */
function drawBounds(plot, { show }, { bounds, colour: stroke }) {
  if (!bounds || !show) return;
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.beginPath();
  for (const [iteration, low, high] of bounds) {
    const x = plot.valToPos(iteration, "x", true);
    ctx.moveTo(x, plot.valToPos(low, "y", true));
    ctx.lineTo(x, plot.valToPos(high, "y", true));
  }
  ctx.strokeStyle = stroke;
  ctx.lineWidth = devicePixelRatio;
  ctx.stroke();
  ctx.restore();
}

/** A chart of lines: {label, curve, values, colour, faint?}, or dots: {..., bounds, hollow}; drag to zoom, double-click to see all. */
export class Chart {
  constructor(element, { unit = number, legend = true } = {}) {
    this.element = element;
    this.unit = unit;
    this.legend = legend;
    this.shape = "";
    new ResizeObserver(() => this.fit()).observe(element);
  }

  /** Draw the chart into the element; skipped when nothing changed, because drawing is slow. */
  fit() {
    if (!this.plot) return;
    const { width, height } = this.size();
    if (width !== this.plot.width || height !== this.plot.height) this.plot.setSize({ width, height });
  }

  size() {
    const legend = this.plot?.root.querySelector(".u-legend")?.offsetHeight ?? (this.legend ? LEGEND : 0);
    return { width: this.element.clientWidth, height: Math.max(60, this.element.clientHeight - legend) };
  }

  show(lines) {
    const data = aligned(lines);
    this.lines = lines;
    const shape = JSON.stringify(lines.map(({ label, colour, faint }) => [label, colour, faint])) + colour("--text");
    if (shape !== this.shape) {
      this.plot?.destroy();
      this.plot = new uPlot(this.options(lines), data, this.element);
      this.shape = shape;
      this.fit();
      return;
    }
    const { min, max } = this.plot.scales.x;
    const seen = this.plot.data[0];
    const zoomed = seen.length > 0 && (min > seen[0] || max < seen[seen.length - 1]);
    this.plot.setData(data, !zoomed);
    if (zoomed) this.plot.redraw(true);
  }

  options(lines) {
    const axis = {
      stroke: colour("--soft"), font: "12px system-ui, sans-serif", size: 26,
      grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false },
    };
    return {
      ...this.size(),
      padding: [8, 8, 0, 0],
      legend: { show: this.legend },
      cursor: { points: { size: 7 }, y: false },
      hooks: { drawAxes: [(plot) => this.lines.forEach((line, index) => drawBounds(plot, plot.series[index + 1], line))] },
      scales: { x: { time: false } },
      axes: [
        { ...axis, space: 70, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? tick.toLocaleString("en") : "")) },
        { ...axis, size: 60, space: 34, values: (_, ticks) => ticks.map(this.unit) },
      ],
      series: [
        { label: "iteration" },
        ...lines.map((line) => ({
          label: line.label, stroke: line.colour, width: line.faint ? 1 : 2, alpha: line.faint ? 0.28 : 1,
          class: line.faint ? "raw" : line.bounds ? "dots" : null, spanGaps: true, paths: line.bounds && (() => null),
          points: line.bounds ? { show: true, size: 7, fill: line.hollow ? colour("--panel") : line.colour } : { show: false },
          fill: line.bounds && !line.hollow ? line.colour : undefined,
          value: (_, value) => (value == null ? "–" : this.unit(value)),
        })),
      ],
    };
  }
}
