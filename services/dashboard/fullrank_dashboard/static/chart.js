// Charts (uPlot) of lines in bands, dots with intervals and levels; their pictures and numbers.
import { colour, number } from "./dom.js";

const LEGEND = 28; // height of one line, pixels
const FONT = "12px system-ui, sans-serif";
const SYNC = "charts"; // all share one cursor

/** Common places of lines, and their values at them. */
function aligned(lines) {
  const [{ xs }] = lines;
  const same = lines.every((line) => line.xs.length === xs.length && line.xs.every((x, index) => x === xs[index]));
  return same ? [xs, ...lines.map(({ values }) => values)] : uPlot.join(lines.map((line) => [line.xs, line.values]));
}

/** Draw the band of a line, or the intervals of dots, below them. */
function drawSpread(plot, { show }, line) {
  if (!show || !(line.low || line.bounds)) return;
  const { ctx } = plot, x = (value) => plot.valToPos(value, "x", true), y = (value) => plot.valToPos(value, "y", true);
  ctx.beginPath();
  for (const [at, low, high] of line.bounds ?? []) {
    ctx.moveTo(x(at), y(low));
    ctx.lineTo(x(at), y(high));
  }
  ctx.strokeStyle = ctx.fillStyle = line.colour;
  ctx.lineWidth = devicePixelRatio;
  ctx.stroke();
  if (!line.low) return;
  ctx.beginPath();
  line.xs.forEach((at, point) => ctx.lineTo(x(at), y(line.high[point])));
  for (let point = line.xs.length - 1; point >= 0; point--) ctx.lineTo(x(line.xs[point]), y(line.low[point]));
  ctx.globalAlpha = 0.16;
  ctx.fill();
  ctx.globalAlpha = 1;
}

/** Draw levels as broken lines with their names. */
function drawLevels(plot, levels) {
  const { ctx, bbox } = plot;
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.strokeStyle = ctx.fillStyle = colour("--soft");
  ctx.lineWidth = devicePixelRatio;
  ctx.textAlign = "right";
  for (const { label, value } of levels) {
    const y = plot.valToPos(value, "y", true);
    ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.setLineDash([]);
    const above = y - bbox.top > 18 * devicePixelRatio;
    ctx.textBaseline = above ? "bottom" : "top";
    ctx.fillText(`${label} ${number(value)}`, bbox.left + bbox.width - 4 * devicePixelRatio, y + (above ? -2 : 3) * devicePixelRatio);
  }
}

/** A chart of lines: {label, xs, values, colour, dash?, low?, high?}, or dots: {..., bounds, hollow}; drag to zoom, double-click to see all. */
export class Chart {
  constructor(element, { unit = number, legend = true, told = () => {} } = {}) {
    Object.assign(this, { element, unit, legend, told, lines: [], levels: [], shape: "" });
    new ResizeObserver(() => this.fit()).observe(element);
  }

  /** Draw the chart into the element; skipped when nothing changed, because drawing is slow. */
  fit() {
    if (!this.plot || !this.element.clientWidth) return;
    const { width, height } = this.size();
    if (width !== this.plot.width || height !== this.plot.height) this.plot.setSize({ width, height });
  }

  size() {
    const legend = this.plot?.root.querySelector(".u-legend")?.offsetHeight ?? (this.legend ? LEGEND : 0);
    return { width: this.element.clientWidth, height: Math.max(60, this.element.clientHeight - legend) };
  }

  clear() {
    this.plot?.destroy();
    Object.assign(this, { plot: null, shape: "", lines: [], levels: [] });
  }

  show(lines, { levels = [], place = "iteration" } = {}) {
    if (!lines.some(({ xs }) => xs.length)) return this.clear();
    const data = aligned(lines);
    Object.assign(this, { lines, levels });
    const looks = lines.map(({ label, colour, dash, hollow }) => [label, colour, dash, hollow]);
    const ends = lines.map(({ label, values }) => `${label} ${this.unit(values.at(-1))}`);
    this.element.setAttribute("role", "img");
    this.element.setAttribute("aria-label", `By ${place}, at the end: ${ends.join(", ")}`);
    const shape = JSON.stringify([looks, place]) + colour("--text");
    if (shape !== this.shape) {
      this.plot?.destroy();
      this.plot = new uPlot(this.options(lines, place), data, this.element);
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

  /** Range of the vertical axis: of lines, bands, intervals and levels within the horizontal one. */
  range(plot) {
    const [min, max] = this.seen; // that of the scale is still the last one
    let low = Infinity, high = -Infinity;
    const see = (value) => {
      if (value == null) return;
      low = Math.min(low, value);
      high = Math.max(high, value);
    };
    this.lines.forEach((line, index) => {
      if (!plot.series[index + 1].show) return;
      line.xs.forEach((x, point) => {
        if (x < min || x > max) return;
        for (const values of [line.values, line.low, line.high]) see(values?.[point]);
      });
      for (const [x, ...ends] of line.bounds ?? []) if (x >= min && x <= max) ends.forEach(see);
    });
    this.levels.forEach(({ value }) => see(value));
    if (low > high) return [0, 1];
    if (low === high) return [low - (Math.abs(low) || 1) / 10, high + (Math.abs(high) || 1) / 10];
    return uPlot.rangeNum(low, high, 0.06, true);
  }

  options(lines, place) {
    const axis = {
      stroke: colour("--soft"), font: FONT, size: 26,
      grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false },
    };
    const below = (plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      this.lines.forEach((line, index) => drawSpread(plot, plot.series[index + 1], line));
      drawLevels(plot, this.levels);
      ctx.restore();
    };
    return {
      ...this.size(),
      padding: [8, 22, 0, 0],
      legend: { show: this.legend },
      cursor: { points: { size: 7 }, y: false, sync: { key: SYNC, setSeries: false } },
      hooks: { drawAxes: [below], setCursor: [(plot) => this.told(plot.cursor.idx)] },
      scales: { x: { time: false, range: (_, min, max) => (this.seen = [min, max]) }, y: { range: (plot) => this.range(plot) } },
      axes: [
        { ...axis, space: 70, values: (_, ticks) => ticks.map((tick) => tick.toLocaleString("en")) },
        { ...axis, size: 60, space: 34, values: (_, ticks) => ticks.map(this.unit) },
      ],
      series: [
        { label: place },
        ...lines.map((line) => ({
          label: line.label, stroke: line.colour, width: 2, dash: line.dash,
          class: line.bounds ? "dots" : null, spanGaps: true, paths: line.bounds && (() => null),
          points: line.bounds ? { show: true, size: 7, fill: line.hollow ? colour("--panel") : line.colour } : { show: false },
          fill: line.bounds && !line.hollow ? line.colour : undefined,
          value: (_, value) => (value == null ? "–" : this.unit(value)),
        })),
      ],
    };
  }

  /** The chart as it is seen, as SVG; null without any. */
  svg(title) {
    const { plot } = this;
    if (!plot) return null;
    const { width, height } = plot, box = Object.fromEntries(Object.entries(plot.bbox).map(([side, size]) => [side, size / devicePixelRatio]));
    const x = (value) => (box.left + plot.valToPos(value, "x")).toFixed(1), y = (value) => (box.top + plot.valToPos(value, "y")).toFixed(1);
    const shown = this.lines.filter((_, index) => plot.series[index + 1].show);
    const soft = colour("--soft"), rows = shown.length + 1, above = 26;
    const ticks = [0, 1].flatMap((side) => plot.axes[side]._splits.map((at, index) => [side, at, plot.axes[side]._values[index]]));
    const path = (points) => `M${points.join("L")}`;
    const parts = [
      ...ticks.map(([side, at, text]) => (side === 0
        ? `<path d="M${x(at)} ${box.top}v${box.height}" stroke="${colour("--line")}"/><text x="${x(at)}" y="${box.top + box.height + 17}" text-anchor="middle">${escaped(text)}</text>`
        : `<path d="M${box.left} ${y(at)}h${box.width}" stroke="${colour("--line")}"/><text x="${box.left - 6}" y="${y(at)}" dy="4" text-anchor="end">${escaped(text)}</text>`)),
      `<text x="${box.left + box.width / 2}" y="${box.top + box.height + 34}" text-anchor="middle">${escaped(plot.series[0].label)}</text>`,
      `<clipPath id="plot"><rect x="${box.left}" y="${box.top}" width="${box.width}" height="${box.height}"/></clipPath><g clip-path="url(#plot)" fill="none">`,
      ...shown.filter(({ low }) => low).map((line) => {
        const edge = (values) => line.xs.map((at, point) => `${x(at)} ${y(values[point])}`);
        return `<path d="${path([...edge(line.high), ...edge(line.low).reverse()])}Z" fill="${line.colour}" fill-opacity=".16"/>`;
      }),
      ...shown.flatMap(({ bounds, colour: hue }) => (bounds ?? []).map(([at, low, high]) => `<path d="M${x(at)} ${y(low)}V${y(high)}" stroke="${hue}"/>`)),
      ...this.levels.map(({ label, value }) => `<path d="M${box.left} ${y(value)}h${box.width}" stroke="${soft}" stroke-dasharray="5 4"/><text x="${box.left + box.width - 4}" y="${y(value) - 4}" text-anchor="end" fill="${soft}">${escaped(`${label} ${number(value)}`)}</text>`),
      ...shown.map((line) => (line.bounds
        ? line.xs.map((at, point) => `<circle cx="${x(at)}" cy="${y(line.values[point])}" r="3.5" stroke="${line.colour}" fill="${line.hollow ? colour("--panel") : line.colour}"/>`).join("")
        : `<path d="${path(line.xs.map((at, point) => `${x(at)} ${y(line.values[point])}`))}" stroke="${line.colour}" stroke-width="2" stroke-dasharray="${line.dash?.join(" ") ?? "none"}"/>`)),
      "</g>",
      ...shown.map((line, row) => `<path d="M${box.left} ${height + 16 + 18 * row}h14" stroke="${line.colour}" stroke-width="3" stroke-dasharray="${line.dash?.join(" ") ?? "none"}"/><text x="${box.left + 22}" y="${height + 20 + 18 * row}">${escaped(line.label)}</text>`),
    ];
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 ${-above} ${width} ${height + above + 18 * rows}" width="${width}" height="${height + above + 18 * rows}" font-family="system-ui, sans-serif" font-size="12" fill="${soft}"><rect y="${-above}" width="100%" height="100%" fill="${colour("--panel")}"/><text x="${box.left}" y="-6" font-size="14" fill="${colour("--text")}">${escaped(title)}</text>${parts.join("\n")}</svg>`;
  }
}

const escaped = (text) => String(text).replace(/[&<>"]/g, (sign) => `&#${sign.codePointAt(0)};`);

/** Rows as CSV; a text that a table would compute is kept from it. */
export const csvOf = (rows) => rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";

function cell(value) {
  if (typeof value !== "string") return value ?? "";
  const text = value.replace(/^[=+\-@\t\r]/, "'$&");
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Let the browser save a text as a file. */
export function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
