// One round: a lane for each learner, the time at which it became decodable, and the time saved.
import { $, h, mark, number, seconds, whole } from "./dom.js";

const MOST_LANES = 200;

/** Draw a round. */
export function drawRound(round, units) {
  $("#iteration").textContent = whole(round.iteration);
  $("#round .lead").replaceChildren(...sentence(round, units));
  const shown = round.lanes.slice(0, MOST_LANES);
  const lanes = shown.map((lane) => drawLane(lane, round));
  if (shown.length < round.lanes.length) {
    lanes.push(h("li", {}, h("span", {}, `and ${round.lanes.length - shown.length} more`)));
  }
  $("#round .lanes").replaceChildren(...lanes);
}

function sentence(round, units) {
  if (round.decodable_s == null) return [`Committed after ${seconds(round.round_s)}.`];
  const parts = [`Rank ${units || "M"} after ${seconds(round.decodable_s)} from ${round.received.map((each) => `L${each}`).join(", ")}. `];
  if (round.late.length === 0) return [...parts, "No learner was late."];
  const times = 1 + round.saved_s / round.round_s;
  parts.push(`Waiting for ${round.late.map((each) => `L${each}`).join(", ")} too would have cost `, h("b", {}, `${seconds(round.saved_s)} more`));
  return [...parts, `, at least${times >= 1.5 ? `: a round ${number(Number(times.toPrecision(2)))} times as long` : ""}.`];
}

function drawLane({ learner, rows, spans }, round) {
  const whole_s = round.round_s;
  const marks = spans.map(([phase, start_s, end_s]) => mark(phase, start_s / whole_s, end_s / whole_s));
  if (round.decodable_s != null) marks.push(mark("rank", round.decodable_s / whole_s));
  const late = spans[0][0] === "late";
  const arrived = late ? "late" : seconds(spans.at(-1)[2]);
  const words = spans.map(([phase, start_s, end_s]) => `${phase} ${seconds(end_s - start_s)}`).join(", ");
  return h(
    "li", { title: `learner ${learner}, ${rows.length > 1 ? "rows" : "row"} ${rows.join(", ") || "–"}: ${words}` },
    h("span", {}, `L${learner}`), h("span", { className: "track" }, ...marks), h("span", { className: late ? "when warn" : "when" }, arrived),
  );
}
