// State from the server, choices of the user, and the drawing of the view that is open.
import { $, colour, forgetColours, h, renew, seconds, whole } from "./dom.js";
import { choices, keep, onChange } from "./choices.js";
import { Chart } from "./chart.js";
import { drawDifferences, drawTable } from "./compare.js";
import { Curve, lineOf } from "./curves.js";
import { ask, drawStage } from "./episode.js";
import { bySettings, drawReturns, drawStatistics, forgetCharts, hueName, isJoined, saveNumbers, savePicture, summaryOf } from "./learning.js";
import { drawCode } from "./matrix.js";
import { drawBudget, drawCollectors, drawLearners, drawLog, drawProof, drawSummary, roundsOf } from "./panels.js";
import { drawRound } from "./rounds.js";

const TABS = ["learning", "rounds", "compare"];
const AT_FIRST = 6; // curves that are shown, one for each colour
const MOST_BUTTONS = 9; // as many as there are keys
const runs = [];
const wished = new Map(); // whether the user shows a run, by index
let selected = 0;
let stale = false; // something must be redrawn
let wanted = null; // the round shown; null: the newest
const charts = {
  times: new Chart($("#times .chart"), { unit: seconds }),
  condition: new Chart($("#proof .chart"), { legend: false }),
};

const tab = () => (TABS.includes(location.hash.slice(1)) ? location.hash.slice(1) : TABS[0]);
/** True if the curve of a run is drawn; returns of another environment are of another kind. */
const isShown = (run) => run.index === selected || (isAlike(run) && (wished.get(run.index) ?? run.curveNumber < AT_FIRST));
const isAlike = ({ environment }) => environment === runs[selected]?.environment;

function listen() {
  const events = new EventSource("/events");
  events.onmessage = ({ data }) => take(JSON.parse(data));
  events.onopen = () => runs.forEach((run) => (run.curve = new Curve()));
  events.onerror = () => say("The dashboard does not answer; trying again.");
}

function take({ run: index, curve, ...facts }) {
  const before = runs[index];
  runs[index] = { ...before, ...facts, index, curve: before?.curve ?? new Curve() };
  runs[index].curve.take(curve);
  redraw();
}

/** Draw once for several messages. */
function redraw() {
  if (stale) return;
  stale = true;
  requestAnimationFrame(() => {
    stale = false;
    draw();
  });
}

/** Run after the next paint, so that the response to an input appears first. */
const soon = (work) => requestAnimationFrame(() => setTimeout(work));

function say(problem) {
  if ($("#problem").textContent !== problem) $("#problem").textContent = problem;
}

/** Number the curves of each environment, by which they are coloured: seeds that are one band have one. */
function numberCurves() {
  for (const environment of new Set(runs.map((run) => run.environment))) {
    const alike = runs.filter((run) => run.environment === environment);
    const groups = isJoined() ? bySettings(alike) : alike.map((run) => [run]);
    groups.forEach((group, number) => group.forEach((run) => (run.curveNumber = number)));
  }
}

function draw() {
  const run = runs[selected];
  numberCurves();
  drawTabs();
  drawRuns();
  if (!run) return;
  document.title = `${run.name} · Fullrank`;
  say(run.problem || (run.status.state === "failed" ? `The run has failed: ${run.status.message}` : ""));
  DRAW[tab()](run);
}

const shown = () => runs.filter((run) => run && isShown(run));

const DRAW = {
  learning: (run) => {
    drawSummary(summaryOf(run));
    drawStage(run);
    drawReturns(shown(), run);
    drawStatistics(shown());
  },
  rounds: (run) => {
    drawSummary(roundsOf(run));
    drawBudget(run);
    drawProof(run);
    drawLearners(run);
    drawCollectors(run);
    drawLog(run);
    drawTimes(run);
    drawCode(run.code, run.status.learners);
    drawRounds(run);
  },
  compare: (run) => {
    drawStage(run);
    drawReturns(shown(), run);
    drawTable(runs.filter(Boolean), { isShown, isFixed: (each) => each.index === selected || !isAlike(each), toggle, select: (index) => { select(index); location.hash = ""; } });
    drawDifferences(shown());
  },
};

/** Open the view that the address names; the large chart stands in two of them. */
function drawTabs() {
  const now = tab();
  for (const name of TABS) {
    $(`#${name}`).hidden = name !== now;
    $(`#tab-${name}`).setAttribute("aria-selected", String(name === now));
    $(`#tab-${name}`).tabIndex = name === now ? 0 : -1;
  }
  $("#summary").hidden = now === "compare";
  $("#returns").classList.toggle("alone", now === "compare");
  if (now !== "rounds" && $("#returns").parentElement !== $(`#${now}`)) $(`#${now}`).prepend($("#returns"));
}

function toggle(index) {
  wished.set(index, !isShown(runs[index]));
  redraw();
}

function drawRuns() {
  const facts = runs.map(({ name, environment, problem, curveNumber }) => [name, environment, problem !== "", curveNumber]);
  const many = runs.length > MOST_BUTTONS;
  $("#chosen-run").hidden = !many;
  $("#runs").hidden = many;
  if (many) {
    renew($("#chosen-run"), facts.map(([name]) => name), () => facts.map(([name], index) => h("option", { value: index }, name)));
    $("#chosen-run").value = selected;
    return;
  }
  const focused = [...$("#runs").children].indexOf(document.activeElement);
  renew($("#runs"), [selected, facts], () => facts.map(([name, environment, away, curve], index) => {
    const mark = h("i");
    mark.style.setProperty("--hue", hueName(curve));
    return h("button", {
      type: "button", role: "radio", "aria-checked": String(index === selected), className: away ? "away" : "",
      title: `${environment} (${index + 1})`, onclick: () => select(index),
    }, mark, name);
  }));
  if (focused >= 0) $("#runs").children[focused]?.focus();
}

function drawTimes({ curve, totals }) {
  if (!curve.length) return;
  const settings = { axis: "iterations", window: Number($("#smoothing").value) };
  const round_s = curve.values("time/round_s"), saved_s = curve.values("saved_s");
  const all_s = round_s.map((value, point) => (value == null ? null : value + saved_s[point]));
  const line = (values) => ({ ...lineOf(curve, values, settings), low: null, high: null, colour: colour("--accent") });
  charts.times.show([
    { ...line(all_s), label: "waiting for all, at least", colour: colour("--soft") },
    { ...line(round_s), label: "as it was" },
  ]);
  charts.condition.show([{ ...line(curve.values("code/condition")), label: "condition" }]);
  const count = curve.length * curve.width;
  $("#times .lead").textContent = totals["code/late"]
    ? `${whole(totals["code/late"])} rows of ${whole(count)} rounds were not waited for.`
    : "Every row came in time.";
}

function drawRounds(run) {
  const slider = $("#chosen");
  if (!run.round) return;
  slider.max = run.round.iteration;
  $("#live").setAttribute("aria-pressed", String(wanted === null));
  if (wanted !== null) return;
  slider.value = run.round.iteration;
  drawRound(run.round, run.status.units);
}

/** Show a round; null follows the newest. */
async function look(iteration) {
  const run = runs[selected];
  if (!run?.round || tab() !== "rounds") return;
  wanted = iteration === null || iteration >= run.round.iteration ? null : Math.max(0, iteration);
  drawRounds(run);
  if (wanted === null) return;
  $("#chosen").value = wanted;
  $("#iteration").textContent = whole(wanted);
  const asked = wanted;
  const response = await fetch(`/runs/${selected}/rounds/${asked}`);
  const answer = await response.json();
  if (asked !== wanted) return;
  if (response.ok) drawRound(answer, run.status.units);
  else $("#round .lead").textContent = answer.problem;
}

function select(index) {
  if (!runs[index]) return;
  selected = index;
  wanted = null;
  $("#round .lanes").replaceChildren();
  $("#round .lead").replaceChildren();
  drawRuns();
  soon(draw);
  soon(ask);
}

function switchTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = choices.theme ?? (dark ? "dark" : "light");
  keep({ theme: now === "dark" ? "light" : "dark" });
  wear();
}

/** Wear the chosen theme, by default that of the system. */
function wear() {
  if (choices.theme) document.documentElement.dataset.theme = choices.theme;
  forgetColours();
  forgetCharts();
  Object.values(charts).forEach((chart) => chart.clear());
  redraw();
}

const step = (by) => look((wanted ?? runs[selected]?.round?.iteration ?? 0) + by);
const KEYS = { t: switchTheme, l: () => look(null), ArrowLeft: () => step(-1), ArrowRight: () => step(1) };

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
  if (event.target.matches("[role=tab]") && event.key.startsWith("Arrow")) return;
  if (/^[1-9]$/.test(event.key)) select(Number(event.key) - 1);
  KEYS[event.key]?.();
});
$("#tabs").addEventListener("keydown", ({ key }) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (!by) return;
  location.hash = TABS[(TABS.indexOf(tab()) + by + TABS.length) % TABS.length];
  drawTabs();
  $(`#tab-${tab()}`).focus();
});
for (const name of TABS) $(`#tab-${name}`).onclick = () => (location.hash = name);
$("#chosen-run").onchange = () => select(Number($("#chosen-run").value));
addEventListener("hashchange", redraw);
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", wear);
onChange(redraw);
$("#theme").onclick = switchTheme;
$("#smoothing").oninput = () => keep({ window: Number($("#smoothing").value) });
$("#measure").onchange = () => keep({ measure: $("#measure").value });
$("#together").onchange = redraw;
$("#filter").oninput = redraw;
$("#svg").onclick = savePicture;
$("#csv").onclick = () => saveNumbers(shown());
$("#chosen").oninput = () => look(Number($("#chosen").value));
$("#earlier").onclick = () => step(-1);
$("#later").onclick = () => step(1);
$("#live").onclick = () => look(null);

wear();
drawTabs();
listen();
