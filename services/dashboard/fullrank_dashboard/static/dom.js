// Elements and texts; text from a run is never interpreted as markup.

/** An element with properties and children; strings become text. */
export function h(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-") || key === "role") element.setAttribute(key, value);
    else element[key] = value;
  }
  element.append(...children);
  return element;
}

/** A mark on a track from one share of its width to another; without an end, a line. */
export function mark(name, start, end) {
  const element = h("i", { className: name });
  element.style.left = percentage(start);
  if (end !== undefined) element.style.width = percentage(end - start);
  return element;
}

const percentage = (share) => `${100 * share}%`;

export const $ = (selector) => document.querySelector(selector);

const shown = new WeakMap();

/** Replace an element's children if their source has changed; focus and selection stay. */
export function renew(element, facts, make) {
  const key = JSON.stringify(facts);
  if (shown.get(element) === key) return;
  shown.set(element, key);
  element.replaceChildren(...make());
}

const colours = new Map();

/** A colour of the style sheet; cached, because reading it forces a layout. */
export function colour(name) {
  if (!colours.has(name)) {
    const probe = h("i");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    colours.set(name, getComputedStyle(probe).color);
    probe.remove();
  }
  return colours.get(name);
}

/** Clear the cached colours after a change of theme. */
export const forgetColours = () => colours.clear();

/** A duration with a suitable unit. */
export function seconds(value) {
  if (value == null) return "–";
  if (value >= 5400) return `${(value / 3600).toFixed(1)} h`;
  if (value >= 90) return `${(value / 60).toFixed(1)} min`;
  if (value >= 1) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  return `${(1000 * value).toPrecision(value >= 0.001 ? 3 : 2)} ms`;
}

/** A number with at most four digits. */
export function number(value) {
  if (value == null) return "–";
  if (value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3)) return value.toExponential(1);
  return Number(value.toPrecision(4)).toLocaleString("en");
}

export const whole = (value) => value.toLocaleString("en");
export const percent = (share) => `${Math.round(100 * share)} %`;
