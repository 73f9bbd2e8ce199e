// State from the server, choices of the user, and the drawing of panels.
import { $, colour, forgetColours, h, renew, seconds, whole } from "./dom.js";
import { Chart, Curve, dots, smooth } from "./curves.js";
import { drawBudget, drawCollectors, drawLearners, drawLog, drawProof, drawSummary } from "./panels.js";
import { drawCode } from "./matrix.js";
import { drawRound } from "./rounds.js";

const HUES = ["--accent", "#0d9488", "#d97706", "#db2777", "#0284c7", "#65a30d"];
const runs = [];
let selected = 0;
const stale = new Set(); // runs that must be redrawn
let wanted = null; // the round shown; null: the newest
const charts = {
  returns: new Chart($("#returns .chart")),
  times: new Chart($("#times .chart"), { unit: seconds }),
  condition: new Chart($("#proof .chart"), { legend: false }),
};

const hue = (index) => (index % HUES.length ? HUES[index % HUES.length] : colour("--accent"));

function listen() {
  const events = new EventSource("/events");
  events.onmessage = ({ data }) => take(JSON.parse(data));
  events.onopen = () => runs.forEach((run) => (run.curve = new Curve()));
  events.onerror = () => say("The dashboard does not answer; trying again.");
}

function take({ run: index, curve, ...facts }) {
  const before = runs[index];
  runs[index] = { ...before, ...facts, curve: before?.curve ?? new Curve() };
  runs[index].curve.take(curve);
  if (!stale.size) requestAnimationFrame(drawStale);
  stale.add(index);
}

/** Draw once for several messages. */
function drawStale() {
  drawRuns();
  drawReturns();
  if (stale.has(selected)) drawSelected();
  stale.clear();
}

/** Run after the next paint, so that the response to an input appears first. */
const soon = (work) => requestAnimationFrame(() => setTimeout(work));

function say(problem) {
  if ($("#problem").textContent !== problem) $("#problem").textContent = problem;
}

function drawSelected() {
  const run = runs[selected];
  document.title = `${run.name} · Fullrank`;
  say(run.problem);
  drawSummary(run);
  drawBudget(run);
  drawProof(run);
  drawLearners(run);
  drawCollectors(run);
  drawLog(run);
  drawTimes(run);
  if (run.code) drawCode(run.code, run.status.learners);
  drawRounds(run);
}

function drawRuns() {
  const facts = runs.map(({ name, environment, problem }) => [name, environment, problem !== ""]);
  const focused = [...$("#runs").children].indexOf(document.activeElement);
  renew($("#runs"), [selected, facts], () => facts.map(([name, environment, away], index) => {
    const mark = h("i");
    mark.style.setProperty("--hue", index % HUES.length ? HUES[index % HUES.length] : "var(--accent)");
    return h("button", {
      type: "button", role: "radio", "aria-checked": String(index === selected), className: away ? "away" : "",
      title: `${environment} (${index + 1})`, onclick: () => select(index),
    }, mark, name);
  }));
  if (focused >= 0) $("#runs").children[focused]?.focus();
}

function drawReturns() {
  const window = Number($("#smoothing").value);
  $("#window").textContent = window;
  const column = offerColumns();
  const known = runs.map((run, index) => ({ run, index })).filter(({ run }) => run?.curve.length);
  if (!known.length) return;
  const lines = known.flatMap(({ run, index }) => {
    const line = { label: run.name, curve: run.curve, colour: hue(index) };
    const values = run.curve.values(column);
    return [{ ...line, values, faint: true }, { ...line, values: smooth(values, window) }];
  });
  const played = known.flatMap(({ run, index }) => [false, true].flatMap((superseded) => {
    const chosen = run.evaluations.filter((each) => each.superseded === superseded && column in each);
    const label = `${run.name} greedily${superseded ? ", superseded" : ""}`;
    return chosen.length ? [{ label, colour: hue(index), hollow: superseded, ...dots(run.curve, chosen, column) }] : [];
  }));
  charts.returns.show([...(window > 1 ? lines : lines.filter((line) => !line.faint)), ...played]);
}

const ROUNDS = ["time/round_s", "saved_s", "code/late", "code/condition", "inexact", "audited"];
const TITLES = { "return/mean": "return", win_rate: "win rate", env_steps_per_s: "environment steps per second" };
const titleOf = (tag) => TITLES[tag] ?? tag.replace(/^return\//, "return of ");

/** Fill the selection of returns, win rates and statistics of learning: all but columns of rounds. */
function offerColumns() {
  const tags = [...new Set(runs.flatMap((run) => [...run.curve.columns.keys()]))].filter((tag) => !ROUNDS.includes(tag));
  const sides = tags.filter((tag) => titleOf(tag).startsWith("return of"));
  if (sides.length === 1) tags.splice(tags.indexOf(sides[0]), 1); // a single side's return is the total
  const select = $("#column");
  if (tags.join() !== [...select.options].map((option) => option.value).join()) {
    const chosen = select.value;
    select.replaceChildren(...tags.map((tag) => h("option", { value: tag }, titleOf(tag))));
    select.value = tags.includes(chosen) ? chosen : tags[0];
  }
  select.hidden = tags.length < 2;
  $("#returns h2").textContent = select.hidden ? "Returns" : "Learning";
  return select.value || "return/mean";
}

function drawTimes({ curve, totals }) {
  if (!curve.length) return;
  const window = Number($("#smoothing").value);
  const round_s = curve.values("time/round_s"), saved_s = curve.values("saved_s");
  const all_s = round_s.map((value, point) => (value == null ? null : value + saved_s[point]));
  charts.times.show([
    { label: "waiting for all, at least", curve, values: smooth(all_s, window), colour: colour("--soft") },
    { label: "as it was", curve, values: smooth(round_s, window), colour: colour("--accent") },
  ]);
  charts.condition.show([{ label: "condition", curve, values: smooth(curve.values("code/condition"), window), colour: colour("--accent") }]);
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
  if (!run?.round) return;
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
  soon(drawSelected);
}

function switchTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  localStorage.setItem("theme", document.documentElement.dataset.theme);
  soon(drawAnew);
}

/** Redraw in the colours of the theme. */
function drawAnew() {
  forgetColours();
  if (!runs.length) return;
  drawReturns();
  drawSelected();
}

const step = (by) => look((wanted ?? runs[selected]?.round?.iteration ?? 0) + by);
const KEYS = { t: switchTheme, l: () => look(null), ArrowLeft: () => step(-1), ArrowRight: () => step(1) };

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
  if (/^[1-9]$/.test(event.key)) select(Number(event.key) - 1);
  KEYS[event.key]?.();
});
addEventListener("resize", () => runs[selected]?.code && drawCode(runs[selected].code, runs[selected].status.learners));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAnew);
$("#theme").onclick = switchTheme;
$("#smoothing").oninput = () => { drawReturns(); soon(() => runs[selected] && drawTimes(runs[selected])); };
$("#column").onchange = drawReturns;
$("#chosen").oninput = () => look(Number($("#chosen").value));
$("#earlier").onclick = () => step(-1);
$("#later").onclick = () => step(1);
$("#live").onclick = () => look(null);

if (localStorage.getItem("theme")) document.documentElement.dataset.theme = localStorage.getItem("theme");
listen();
