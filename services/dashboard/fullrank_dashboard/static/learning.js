// Curves of learning: one large chart of several runs, and small ones of pinned statistics.
import { $, colour, h, number, percent, renew, seconds, whole } from "./dom.js";
import { Chart, csvOf, save } from "./chart.js";
import { dotsOf, lineOf, smooth, together } from "./curves.js";
import { choices, keep } from "./choices.js";

const HUES = ["--accent", "#0d9488", "#d97706", "#db2777", "#0284c7", "#65a30d"];
const DASHES = [undefined, [6, 3], [2, 3], [8, 3, 2, 3]];
const AXES = { iterations: "iteration", steps: "environment steps", minutes: "minutes of training" };
const RETURN = "return/mean";
const LEVELS = { random: "random play", good: "good play" };
/** Columns that the view of rounds shows, or that places are made of. */
const ELSEWHERE = ["time/round_s", "time/iteration_s", "saved_s", "code/late", "code/condition", "inexact", "audited", "env_steps"];
/** Meanings of common statistics. */
const MEANINGS = {
  [RETURN]: "return: rewards of a whole episode, summed over all agents", return: "return of each side",
  win_rate: "share of episodes won", critic_loss: "error of the critic's estimate of returns",
  actor_loss: "objective that the policies minimise", policy_loss: "objective that the policies minimise",
  value_loss: "error of the estimated returns", explained_variance: "share of the variance of returns that the estimate explains; 1: all",
  loss: "error of the estimated values of actions", td_loss: "error of the estimated values of actions",
  td_error_abs: "mean error of the estimated values of actions", q_taken_mean: "estimated value of the actions taken",
  q_values: "estimated value of the actions taken", target_mean: "value that the estimate is drawn to",
  target_deviation: "standard deviation of the values that the estimate is drawn to",
  qf1_loss: "error of the critic", qf1_values: "estimate of the critic",
  qf2_loss: "error of the second critic", qf2_values: "estimate of the second critic",
  entropy: "randomness of the policies; 0: they always act alike", alpha: "weight of the entropy in the objective",
  alpha_loss: "objective by which the weight of the entropy is learned",
  approx_kl: "estimated divergence of the policies from those that played", clipfrac: "share of actions whose probability ratio is clipped",
  grad_norm: "length of the gradient: before the controller clips it, or after learners clipped it",
  learning_rate: "length of a step of the optimiser, before its scaling",
  epsilon: "share of random actions", ep_length_mean: "steps of an episode", env_steps_per_s: "environment steps per second",
};
const FIRST = [
  "return", "win_rate", "loss", "td_loss", "critic_loss", "value_loss", "actor_loss", "policy_loss", "q_taken_mean", "q_values", "qf1_loss",
  "entropy", "approx_kl", "clipfrac", "alpha", "grad_norm", "env_steps_per_s", "learning_rate",
];
const PINNED = 6; // at first
const SHORTEST = 20, WINDOWS = 40; // of smoothing: iterations, and windows in a run

export const hue = (index) => (index % HUES.length ? HUES[index % HUES.length] : colour("--accent"));
export const hueName = (index) => (index % HUES.length ? HUES[index % HUES.length] : "var(--accent)");

const charts = { returns: new Chart($("#returns .chart")), pinned: new Map() };
const settled = () => ({ axis: choices.axis ?? "iterations", window: Number($("#smoothing").value), joined: isJoined() });

/** True if runs that differ in their seed alone are one line. */
export const isJoined = () => $("#together input").checked;

/** Measures of the runs: tags by name; groups of agents, and sides, are lines of one measure. */
function measuresOf(runs) {
  const found = new Map();
  for (const tag of new Set(runs.flatMap((run) => [...run.curve.columns.keys()]))) {
    if (ELSEWHERE.includes(tag)) continue;
    const name = tag === RETURN ? RETURN : tag.split("/")[0];
    found.set(name, [...(found.get(name) ?? []), tag]);
  }
  if (found.get("return")?.length === 1) found.delete("return"); // a single side's return is the total
  const rank = (name) => (name === RETURN ? -1 : FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  return new Map([...found].sort(([one], [other]) => rank(one) - rank(other)));
}

const titleOf = (name) => ({ [RETURN]: "return", return: "return by side", win_rate: "win rate", env_steps_per_s: "environment steps / s" })[name] ?? name;

/** Lines of a measure, of each run; groups of runs that differ in their seed alone may be one. */
function linesOf(runs, name, tags, settings) {
  const groups = settings.joined ? bySettings(runs) : runs.map((run) => [run]);
  const one = groups.length === 1;
  return groups.flatMap((alike) => {
    const known = tags.filter((tag) => alike.some(({ curve }) => curve.columns.has(tag)));
    const parts = known.length > DASHES.length ? [known] : known.map((tag) => [tag]);
    return parts.map((part, index) => {
      const lines = alike.map(({ curve }) => lineOf(curve, meanOf(curve, part), settings)).filter(({ xs }) => xs.length);
      if (!lines.length) return { xs: [], values: [] };
      const whose = alike.length > 1 ? `${alike[0].name}, ${alike.length} seeds` : alike[0].name;
      const which = part.length > 1 ? `, mean of ${part.length}` : parts.length > 1 ? ` ${part[0].slice(name.length + 1) || "all"}` : "";
      return {
        ...(lines.length > 1 ? together(lines) : lines[0]), label: whose + which,
        colour: one ? hue(parts.length > 1 ? index : alike[0].curveNumber) : hue(alike[0].curveNumber), dash: one ? undefined : DASHES[index],
      };
    });
  }).filter(({ xs }) => xs.length);
}

function meanOf(curve, tags) {
  if (tags.length === 1) return curve.values(tags[0]);
  const all = tags.filter((tag) => curve.columns.has(tag)).map((tag) => curve.values(tag));
  return all[0].map((_, point) => {
    const known = all.map((values) => values[point]).filter((value) => value != null);
    return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
  });
}

/** Groups of runs that differ in their seed alone; a second run of a seed is of another group. */
export function bySettings(runs) {
  const groups = new Map(), seen = new Map();
  for (const run of runs) {
    const { seed, ...others } = run.settings ?? { seed: run.index, unknown: run.index };
    const each = JSON.stringify([seed, others]), again = seen.get(each) ?? 0;
    seen.set(each, again + 1);
    const key = JSON.stringify([others, again]);
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  return [...groups.values()];
}

/** Dots of greedy evaluations, hollow where they are superseded. */
function played(runs, tags, axis) {
  return runs.flatMap((run) => tags.flatMap((tag) => [false, true].flatMap((superseded) => {
    const chosen = run.evaluations.filter((each) => each.superseded === superseded && tag in each);
    const side = tags.length > 1 ? ` ${tag.split("/").at(-1)}` : "";
    const label = `${run.name}${side} greedily${superseded ? ", superseded" : ""}`;
    return chosen.length ? [{ label, colour: hue(run.curveNumber), hollow: superseded, ...dotsOf(run.curve, chosen, tag, axis) }] : [];
  })));
}

/** Returns and win rates of reference policies. */
function levelsOf({ references }, tags) {
  return Object.entries(LEVELS).flatMap(([name, words]) => tags.flatMap((tag) => {
    const value = references[name]?.[tag];
    return value == null ? [] : [{ label: tags.length > 1 ? `${words}, ${tag.split("/").at(-1)}` : words, value }];
  }));
}

/** Draw the large chart; `runs` are those shown, `run` the selected one. */
export function drawReturns(runs, run) {
  const longest = Math.max(...runs.map(({ curve }) => curve.length * curve.width));
  $("#smoothing").value = choices.window ?? Math.max(SHORTEST, longest / WINDOWS);
  const { axis, window } = settled();
  $("#window").textContent = window;
  drawAxes();
  const measures = measuresOf(runs), name = offer(measures);
  const tags = measures.get(name) ?? [];
  const seeds = bySettings(runs).some((group) => group.length > 1);
  $("#together").hidden = !seeds;
  const joined = seeds && isJoined();
  const lines = linesOf(runs, name, tags, { axis, window, joined });
  const dots = joined ? [] : played(runs, tags, axis), levels = levelsOf(run, tags);
  charts.returns.show([...lines, ...dots], { levels, place: AXES[axis] });
  renew($("#returns .note"), [lines.length, !!dots.length, levels.length, joined, window, axis, run.curve.length, run.stage.problem], () =>
    [explain({ lines, dots, levels, joined, window, axis, run })]);
}

function explain({ lines, dots, levels, joined, window, axis, run }) {
  if (!lines.length && axis !== "iterations" && run.curve.length) return `No ${AXES[axis]} are recorded.`;
  if (!lines.length) return run.curve.length ? "No episode has ended yet, so there is no return." : "There is no iteration to draw yet.";
  const words = [];
  if (joined) words.push("Line: mean of the seeds; shade: from the lowest to the highest.");
  else if (window > 1) words.push(`Line: mean of ${window} iterations of exploring play; shade: one standard deviation to both sides.`);
  if (dots.length) words.push("Dots: greedy play, 95 % intervals.");
  const good = levels.some(({ label }) => label.startsWith(LEVELS.good));
  if (levels.length) words.push(`Broken: random play${good ? ", and the play of a rule that sees everything" : ""}.`);
  if (run.stage.problem) words.push(`No episode: ${run.stage.problem}.`);
  return words.join(" ");
}

function drawAxes() {
  const now = settled().axis;
  renew($("#abscissa"), now, () => Object.keys(AXES).map((axis) => h("button", {
    type: "button", role: "radio", "aria-checked": String(axis === now), title: `By ${AXES[axis]}`,
    onclick: () => { keep({ axis }); $(`#abscissa [aria-checked="true"]`)?.focus(); },
  }, axis)));
}

/** Offer the measures, and return the chosen one. */
function offer(measures) {
  const select = $("#measure"), names = [...measures.keys()];
  const now = names.includes(choices.measure) ? choices.measure : names[0] ?? RETURN;
  renew(select, names, () => names.map((name) => h("option", { value: name }, titleOf(name))));
  select.value = now;
  select.hidden = !names.length;
  select.title = MEANINGS[now] ?? "";
  return now;
}

/** Draw the pinned statistics. */
export function drawStatistics(runs) {
  const measures = measuresOf(runs), names = [...measures.keys()].filter((name) => name !== RETURN);
  const pinned = (choices.pinned ?? names.slice(0, PINNED)).filter((name) => measures.has(name));
  const wanted = $("#filter").value.trim().toLowerCase();
  $("#filter").hidden = names.length < 12;
  const offered = names.filter((name) => titleOf(name).toLowerCase().includes(wanted));
  renew($("#statistics .chips"), [offered, pinned], () => offered.map((name) => h("button", {
    type: "button", "aria-pressed": String(pinned.includes(name)), title: MEANINGS[name] ?? name,
    onclick: () => {
      keep({ pinned: pinned.includes(name) ? pinned.filter((each) => each !== name) : [...pinned, name] });
      [...$("#statistics .chips").children].find((chip) => chip.textContent === titleOf(name))?.focus();
    },
  }, titleOf(name))));
  renew($("#statistics .grid"), pinned, () => {
    charts.pinned = new Map();
    return pinned.length ? pinned.map(card) : [h("p", { className: "note" }, names.length ? "Press a name to pin its curve here." : "This run has recorded no statistics yet.")];
  });
  for (const name of pinned) {
    const lines = linesOf(runs, name, measures.get(name), settled());
    const each = charts.pinned.get(name);
    each.show(lines.map((line) => ({ ...line, low: null, high: null })), { place: AXES[settled().axis] });
    each.told(null);
  }
}

function card(name) {
  const value = h("output"), box = h("div", { className: "chart" });
  const enlarge = h("button", { type: "button", className: "plain", title: `${MEANINGS[name] ?? name}; press to enlarge`, onclick: () => { keep({ measure: name }); scrollTo({ top: 0 }); } }, titleOf(name));
  const unpin = h("button", { type: "button", className: "plain", "aria-label": `Unpin ${titleOf(name)}`, title: "Unpin", onclick: () => keep({ pinned: [...charts.pinned.keys()].filter((each) => each !== name) }) }, "×");
  const article = h("article", {}, h("h3", {}, enlarge), value, unpin, box);
  const chart = new Chart(box, { legend: false, told: (index) => {
    const lines = chart.lines.length > 4 ? [] : chart.lines;
    value.replaceChildren(...lines.map(({ label, colour: ink }, line) => {
      const values = chart.plot.data[line + 1], mark = h("i");
      mark.style.background = ink;
      return h("span", { title: label }, ...(lines.length > 1 ? [mark] : []), number(values[index ?? values.length - 1] ?? values.findLast((each) => each != null)));
    }));
  } });
  charts.pinned.set(name, chart);
  return article;
}

/** Forget the charts' looks after a change of theme. */
export const forgetCharts = () => [charts.returns, ...charts.pinned.values()].forEach((chart) => chart.clear());

/** Where the selected run stands, in a line of numbers. */
export function summaryOf({ status, curve, evaluations, references, problem, round }) {
  const known = status.term > 0; // a term counts from 1
  const committed = known ? status.committed : round ? round.iteration + 1 : 0;
  const minutes = curve.places("minutes");
  const since = Math.max(0, minutes.length - 51), span = minutes.length - 1 - since;
  const left_s = span > 0 ? ((60 * (minutes.at(-1) - minutes[since])) / (span * curve.width)) * (status.iterations - committed) : 0;
  const running = !problem && status.state === "running" && left_s > 0;
  const items = [
    ["state", problem ? "away" : status.state, running ? `${seconds(left_s)} left` : minutes.length ? `${seconds(60 * minutes.at(-1))} of training` : ""],
    ["iterations", whole(committed), status.iterations ? `of ${whole(status.iterations)}` : ""],
    ["environment steps", status.env_steps == null ? "–" : whole(status.env_steps), status.env_steps_per_s == null ? "" : `${whole(Math.round(status.env_steps_per_s))}/s`],
    ["return while exploring", number(status.return_mean), status.win_rate == null ? "last 20 iterations" : `won ${percent(status.win_rate)}`],
  ];
  const newest = evaluations.filter((each) => !each.superseded).at(-1);
  const [random, good] = ["random", "good"].map((name) => references[name]?.[RETURN]);
  if (newest) {
    const closed = good == null ? "" : `, ${percent((newest[RETURN][0] - random) / (good - random))} from random to good`;
    items.push(["return, greedily", number(newest[RETURN][0]), `after ${whole(newest.iteration + 1)}${closed}`]);
  }
  if (random != null) items.push(["random play", number(random), "actions by lot"]);
  if (good != null) items.push(["good play", number(good), "a rule that sees everything"]);
  return items;
}

/** Save what the large chart shows. */
export function savePicture() {
  const svg = charts.returns.svg(titleOf($("#measure").value));
  if (svg) save(`${$("#measure").value.replace("/", "_")}.svg`, "image/svg+xml", svg);
}

/** Save the numbers of the runs shown, unsmoothed: a row for each run and point. */
export function saveNumbers(runs) {
  const tags = measuresOf(runs).get($("#measure").value) ?? [];
  const ends = tags.flatMap((tag) => ["", "_low", "_high"].map((end) => `greedy_${tag}${end}`));
  const rows = runs.flatMap(({ name, curve, evaluations }) => {
    const steps = curve.places("steps"), minutes = curve.places("minutes"), columns = tags.map((tag) => curve.values(tag));
    const greedy = new Map(evaluations.filter((each) => !each.superseded).map((each) => [Math.floor(each.iteration / curve.width), each]));
    return curve.places("iterations").map((iteration, point) => [
      name, iteration, steps[point], minutes[point], ...columns.map((values) => values[point]),
      ...tags.flatMap((tag) => greedy.get(point)?.[tag] ?? [null, null, null]),
    ]);
  });
  save(`${$("#measure").value.replace("/", "_")}.csv`, "text/csv", csvOf([["run", "iteration", "env_steps", "minutes", ...tags, ...ends], ...rows]));
}
