// Runs side by side: their results, and the settings in which they differ.
import { $, h, number, renew, seconds, whole } from "./dom.js";
import { hueName } from "./learning.js";

const HEADS = ["shown", "run", "algorithm", "environment", "state", "iterations", "steps", "training", "return", "greedily"];

const value = (run, key) => run.settings?.[key] ?? "–";

/** Table of all runs; `toggle` shows or hides the curve of one. */
export function drawTable(runs, { isShown, isFixed, toggle, select }) {
  const facts = runs.map((run) => [
    run.name, value(run, "algorithm.name"), run.environment, run.problem ? "away" : run.status.state,
    whole(run.curve.length * run.curve.width), run.status.env_steps == null ? "–" : whole(run.status.env_steps),
    seconds(60 * (run.curve.places("minutes").at(-1) ?? 0)), number(run.status.return_mean),
    number(run.evaluations.filter((each) => !each.superseded).at(-1)?.["return/mean"][0]),
  ]);
  $("#table thead tr").replaceChildren(...HEADS.map((head) => h("th", { scope: "col" }, head)));
  renew($("#table tbody"), [facts, runs.map((run) => [isShown(run), isFixed(run), run.curveNumber])], () => facts.map(([name, ...cells], place) => {
    const run = runs[place], mark = h("i");
    mark.style.setProperty("--hue", hueName(run.curveNumber));
    const box = h("input", { type: "checkbox", checked: isShown(run), disabled: isFixed(run), "aria-label": `Show ${name}`, onchange: () => toggle(run.index) });
    if (box.disabled) box.title = box.checked ? "The selected run" : "Of another environment: select it to see its curve";
    const open = h("button", { type: "button", className: "plain", title: "Show its learning", onclick: () => select(run.index) }, mark, name);
    return h("tr", {}, h("td", {}, box), h("td", {}, open), ...cells.map((cell) => h("td", {}, cell)));
  }));
}

/** Settings in which the shown runs differ; of a single one, all. */
export function drawDifferences(runs) {
  const known = runs.filter(({ settings }) => settings);
  const keys = [...new Set(known.flatMap(({ settings }) => Object.keys(settings)))];
  const rows = keys.filter((key) => known.length === 1 || known.some((run) => value(run, key) !== value(known[0], key)));
  $("#differences h2").textContent = known.length > 1 ? "Settings that differ" : "Settings";
  $("#differences .lead").textContent = rows.length ? "" : keys.length ? `All ${whole(keys.length)} settings are equal.` : "No settings are known yet.";
  renew($("#differences thead tr"), [known.map(({ name }) => name), rows.length], () =>
    (rows.length ? ["setting", ...known.map(({ name }) => name)].map((head) => h("th", { scope: "col" }, head)) : []));
  renew($("#differences tbody"), rows.map((key) => [key, known.map((run) => value(run, key))]), () => rows.map((key) =>
    h("tr", {}, h("th", { scope: "row" }, key), ...known.map((run) => h("td", {}, value(run, key))))));
}
