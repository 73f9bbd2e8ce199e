// Numbers over iterations: their columns, places on an axis, means, spreads, and bands over seeds.

const MOST = 2000; // points of a line; more than a screen has pixels

/** Growing columns of numbers; point p covers `width` iterations from p * width on. */
export class Curve {
  constructor() {
    this.width = 1;
    this.length = 0;
    this.columns = new Map();
    this.placed = new Map(); // places that were asked for
  }

  /** Replace all points from `start` on. */
  take({ start, width, columns }) {
    this.width = width;
    this.placed.clear();
    if (start === 0) this.columns.clear();
    this.length = Math.max(start, ...Object.values(columns).map((values) => start + values.length));
    for (const [name, values] of Object.entries(columns)) {
      const kept = (this.columns.get(name) ?? []).slice(0, start);
      while (kept.length < start) kept.push(null);
      this.columns.set(name, kept.concat(values));
    }
  }

  values(name) {
    return this.columns.get(name) ?? Array(this.length).fill(null);
  }

  /** Place of each point: iterations, environment steps or minutes of training; null where unknown. */
  places(axis) {
    if (!this.placed.has(axis)) this.placed.set(axis, this.placesBy(axis));
    return this.placed.get(axis);
  }

  placesBy(axis) {
    if (axis === "steps") return filled(this.values("env_steps"));
    if (axis !== "minutes") return Array.from({ length: this.length }, (_, point) => point * this.width);
    let minutes = 0;
    return this.values("time/iteration_s").map((spent_s) => (minutes += ((spent_s ?? 0) * this.width) / 60));
  }
}

function filled(values) {
  let last = null;
  return values.map((value) => (last = value ?? last));
}

/** Means over the last `window` points, and standard deviations around them, skipping gaps. */
export function smooth(values, window) {
  const means = Array(values.length).fill(null), deviations = Array(values.length).fill(null);
  const origin = values.find((value) => value != null) ?? 0; // keeps digits where all are large
  let sum = 0, squares = 0, count = 0;
  const add = (value, by) => {
    if (value == null) return;
    sum += by * (value - origin);
    squares += by * (value - origin) ** 2;
    count += by;
  };
  values.forEach((value, last) => {
    add(value, 1);
    if (last >= window) add(values[last - window], -1);
    if (value == null) return;
    means[last] = origin + sum / count;
    deviations[last] = Math.sqrt(Math.max(0, squares / count - (sum / count) ** 2));
  });
  return { means, deviations };
}

/** A smoothed line in its band: {xs, values, low, high}, of as many points as can be seen. */
export function lineOf(curve, values, { axis, window }) {
  const { means, deviations } = smooth(values, Math.max(1, Math.round(window / curve.width)));
  const places = curve.places(axis), known = [];
  means.forEach((mean, point) => { if (mean != null && places[point] != null) known.push(point); });
  const every = Math.ceil(known.length / MOST);
  const points = known.filter((_, index) => index % every === 0 || index === known.length - 1);
  const banded = window > 1;
  return {
    xs: points.map((point) => places[point]),
    values: points.map((point) => means[point]),
    low: banded && points.map((point) => means[point] - deviations[point]),
    high: banded && points.map((point) => means[point] + deviations[point]),
  };
}

/** The mean of several lines over what they have in common, in the band from lowest to highest. */
export function together(lines) {
  const first = Math.max(...lines.map(({ xs }) => xs[0])), last = Math.min(...lines.map(({ xs }) => xs.at(-1)));
  const xs = lines[0].xs.filter((x) => x >= first && x <= last);
  const all = lines.map((line) => at(line, xs));
  const each = (take) => xs.map((_, point) => take(all.map((values) => values[point])));
  return {
    xs,
    values: each((found) => found.reduce((sum, value) => sum + value, 0) / found.length),
    low: each((found) => Math.min(...found)),
    high: each((found) => Math.max(...found)),
  };
}

/** Values of a line at ascending places within it, interpolated. */
function at({ xs, values }, places) {
  let right = 1;
  return places.map((x) => {
    while (right < xs.length - 1 && xs[right] < x) right += 1;
    if (xs.length < 2) return values[0];
    const share = (x - xs[right - 1]) / (xs[right] - xs[right - 1] || 1);
    return values[right - 1] + share * (values[right] - values[right - 1]);
  });
}

/** Evaluations as dots: their middles, and [x, low, high] of each. */
export function dotsOf(curve, evaluations, tag, axis) {
  const places = curve.places(axis);
  const bounds = [], seen = new Map();
  for (const { iteration, [tag]: [mean, low, high] } of evaluations) {
    const x = places[Math.floor(iteration / curve.width)];
    if (x == null) continue;
    seen.set(x, mean);
    bounds.push([x, low, high]);
  }
  const xs = [...seen.keys()].sort((one, other) => one - other);
  return { xs, values: xs.map((x) => seen.get(x)), bounds };
}
