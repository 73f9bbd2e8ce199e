// Panels of text and numbers.
import { $, h, mark, number, percent, renew, seconds, whole } from "./dom.js";

/** Draw a line of numbers: [name, value, remark] each. */
export function drawSummary(items) {
  $("#summary").replaceChildren(...items.map(([name, value, more]) => h("div", {}, h("dt", {}, name), h("dd", {}, value, h("small", {}, more)))));
}

/** What rounds take and what the code saves, in a line of numbers. */
export function roundsOf(run) {
  const { status, totals, round } = run;
  const rounds = run.curve.length * run.curve.width;
  const rate = status.agent_updates_per_s;
  return [
    ["term", status.term || "–", "rises at every start"],
    ["round", rounds ? seconds(totals["time/round_s"] / rounds) : "–", "mean"],
    ["agent-updates", rate == null ? "–" : `${whole(Math.round(rate))}/s`, "last 20 iterations"],
    ["saved by the code", rounds ? seconds(totals.saved_s) : "–", rounds ? share(totals) : ""],
    ["learners", status.learners.length ? whole(status.learners.length) : "–", round ? `tolerance ${round.tolerance}` : ""],
  ];
}

const share = ({ "time/round_s": round_s, saved_s }) => `at least, ${percent(saved_s / (round_s + saved_s))}`;

/** Time of each phase, and advice about the longest. */
export function drawBudget({ status: { phases_s, bottleneck } }) {
  const [what, advice] = bottleneck?.text.split(": ") ?? [];
  $("#budget .lead").replaceChildren(...(bottleneck ? [h("b", {}, what), `: ${advice}.`] : ["Nothing was measured yet."]));
  const known = Object.entries(phases_s);
  const total = known.reduce((sum, [, spent]) => sum + spent, 0) || 1;
  $(".bar").replaceChildren(...known.map(([phase, spent]) => {
    const part = h("i", { className: phase });
    part.style.flexGrow = spent / total;
    return part;
  }));
  $(".phases").replaceChildren(...known.map(([phase, spent]) => h(
    "li", {}, h("i", { className: phase }), h("span", {}, phase),
    h("span", {}, seconds(spent)), h("span", {}, percent(spent / total)),
  )));
}

/** Exactness of the run and its caveats. */
export function drawProof({ round, totals, status }) {
  if (!round) return;
  $("#proof .lead").replaceChildren(...(totals.inexact
    ? [h("span", { className: "warn" }, `${whole(totals.inexact)} inexact rounds`), ": their bits depend on who was late."]
    : [h("b", {}, "Exact"), ": the same bits with any learners late."]));
  const facts = [
    ["condition of C_J", number(round.condition)],
    ["largest error", round.exact ? "0" : number(round.error_bound)],
    ["digests compared", whole(totals.audited)],
    ["digest", h("span", { className: "mono", title: round.digest }, round.digest.slice(0, 16))],
    ...status.caveats.map((caveat) => ["but", h("span", { className: "warn", title: caveat }, caveat)]),
  ];
  $("#proof dl").replaceChildren(...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** Table of the attached learners. */
export function drawLearners({ status: { learners } }) {
  const cells = (each) => [
    each.learner, each.host, each.rows.join(", ") || "–", each.state, `${seconds(each.silent_s)} ago`,
    h("span", {}, h("progress", { max: 1, value: each.late, "aria-hidden": "true" }), percent(each.late)),
  ];
  const rows = learners.map((each) => h("tr", {}, ...cells(each).map((cell) => h("td", {}, cell))));
  $("#learners tbody").replaceChildren(...(rows.length ? rows : [h("tr", {}, h("td", { colSpan: 6 }, "No learner is attached."))]));
}

const BLOCKS = ["a block", "reassigned", "stale", "idle"];
const LEARNING = { played: "played", handed_over: "handed over" };

/** Table of the attached collectors, their totals, and who waits for whom; hidden in runs without any. */
export function drawCollectors({ status: { collectors, blocks, playing } }) {
  const learning = collectors.some((each) => each.container);
  $("#collectors").hidden = !blocks;
  if (!blocks) return;
  $("#collectors .lead").textContent = playing;
  $("#collectors .note").textContent = [
    `${whole(blocks.played)} blocks played, ${seconds(blocks.block_s)} each`,
    `${whole(blocks.reassigned)} reassigned, ${whole(blocks.lost)} lost with their collector, ${whole(blocks.failed)} failed`,
    `the run waited ${seconds(blocks.awaited_s)} for blocks`,
  ].join("; ") + ".";
  const idle = (each) => h("span", {}, h("progress", { max: 1, value: each.idle, "aria-hidden": "true" }), percent(each.idle));
  const facts = (each) => [seconds(each.block_s), whole(each.reassigned), whole(each.stale), idle(each)];
  const learned = ({ container }) => (container
    ? [...Object.keys(LEARNING).map((name) => whole(container[name])), container.divergence.toFixed(3)] : []);
  const cells = (each) => [
    each.collector, each.host, each.state, whole(each.blocks), ...facts(each), ...learned(each),
    whole(each.lag), `${seconds(each.silent_s)} ago`,
  ];
  const heads = [
    "collector", "host", "state", "blocks", ...BLOCKS,
    ...(learning ? [...Object.values(LEARNING), "divergence"] : []), "lag", "heard",
  ];
  $("#collectors thead tr").replaceChildren(...heads.map((head) => h("th", {}, head)));
  drawContainers(collectors);
  const rows = collectors.map((each) => h("tr", {}, ...cells(each).map((cell) => h("td", {}, cell))));
  $("#collectors tbody").replaceChildren(...(rows.length ? rows : [h("tr", {}, h("td", { colSpan: heads.length }, "Nobody is attached."))]));
}

/** A lane for each container that learns: the updates of its published head, and those since. */
function drawContainers(collectors) {
  const learning = collectors.filter(({ container }) => container?.updates);
  const most = Math.max(...learning.map(({ container }) => container.updates));
  $("#collectors .lanes").replaceChildren(...learning.map(({ collector, state, container }) => {
    const published = Math.min(container.published, container.updates);
    const track = [mark("compute", 0, published / most), mark("transfer", published / most, container.updates / most)];
    const words = `${whole(published)} of ${whole(container.updates)} updates published`;
    return h(
      "li", { title: `container ${collector}: ${words}, ${state}` },
      h("span", {}, `C${collector}`), h("span", { className: "track" }, ...track),
      h("span", { className: "when" }, whole(container.updates)),
    );
  }));
}

/** Log of faults, audits and changes, the newest first. */
export function drawLog({ log }) {
  const line = ({ iteration, kind, text }) => h("li", {}, h("span", {}, whole(iteration)), h("p", { className: kind }, text));
  renew($("#log ol"), log, () => (log.length ? log.map(line) : [h("li", {}, h("span"), h("p", {}, "Nothing happened yet."))]));
}
