// An episode of the selected run, seen from above; the server plays a new one as policies improve.
import { $, colour, h, number, renew } from "./dom.js";

const FRAME_MS = 120, LAST_MS = 1500, TRAIL = 12;
const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
const canvas = $("#episode canvas");
let run = null; // the selected one
let shown = { run: null, played: null }; // what `episode` is of
let episode = null, step = 0, playing = !calm, next_ms = 0;

/** Take the state of the selected run, and fetch its newest episode. */
export async function drawStage(selected) {
  run = selected;
  const { index, stage } = run;
  if (shown.run !== index) {
    shown = { run: index, played: null };
    episode = null;
  }
  if (stage.played != null && stage.played !== shown.played) {
    shown.played = stage.played;
    const response = await fetch(`/runs/${index}/episode`).catch(() => null);
    const found = response?.ok ? await response.json() : null;
    if (shown.run !== index) return;
    if (!found) return void (shown.played = null); // asked again with the next news
    episode = found;
    step = calm ? episode.moments.length - 1 : 0;
    $("#step").max = episode.moments.length - 1;
  }
  const kinds = Object.entries(episode?.styles ?? {});
  renew($("#episode .legend"), kinds, () => kinds.map(([kind, { colour: fill }]) => {
    const mark = h("i");
    mark.style.background = fill;
    return h("li", {}, mark, episode.moments[0].key[kind] ?? kind);
  }));
  $("#episode").classList.toggle("none", !episode);
  $("#episode").hidden = !episode && stage.problem !== "";
  $("#returns").classList.toggle("full", $("#episode").hidden);
  $("#episode .note").textContent = !episode ? (stage.busy ? "Playing an episode of the newest policies." : "An episode will be shown here.")
    : `${episode.title}${stage.busy ? " · playing newer policies" : ""}`;
  drawStep();
}

/** Ask for an episode of newer policies, while the page and the player are watched. */
export function ask() {
  if (!run || document.hidden || $("#returns").closest("[hidden]") || (episode && !playing) || run.stage.busy) return;
  if (run.stage.played == null || run.status.committed - 1 > run.stage.played) fetch(`/runs/${run.index}/episode`, { method: "POST" }).catch(() => {});
}

function tick(now_ms) {
  if (episode && playing && !canvas.closest("[hidden]") && now_ms >= next_ms) {
    step = (step + 1) % episode.moments.length;
    next_ms = now_ms + (step === episode.moments.length - 1 ? LAST_MS : FRAME_MS);
    drawStep();
  }
  requestAnimationFrame(tick);
}

function play(on) {
  playing = on;
  $("#play").textContent = on ? "❚❚" : "▶";
  $("#play").setAttribute("aria-label", on ? "Pause" : "Play");
}

/** Draw one step in the colours of the run's own renderer. */
export function drawStep() {
  if (!episode) return;
  const moment = episode.moments[step], half = episode.half_width;
  $("#step").value = step;
  const earned = Object.entries(moment.earned).map(([side, value]) => (Object.keys(moment.earned).length > 1 ? `${side} ${number(value)}` : number(value)));
  $("#episode output").textContent = `step ${step} · return ${earned.join(", ")}`;
  const side = canvas.clientWidth, scale = devicePixelRatio;
  if (!side) return;
  if (canvas.width !== Math.round(side * scale)) canvas.width = canvas.height = Math.round(side * scale);
  const context = canvas.getContext("2d");
  const unit = (side * scale) / (2 * half);
  const x = (value) => (value + half) * unit, y = (value) => (half - value) * unit;
  context.clearRect(0, 0, canvas.width, canvas.height);
  const line = (points, { stroke, width = 1, dash = [], alpha = 1 }) => {
    context.globalAlpha = alpha;
    context.strokeStyle = stroke;
    context.lineWidth = width * scale;
    context.setLineDash(dash.map((part) => part * scale));
    context.beginPath();
    points.forEach(([px, py]) => context.lineTo(x(px), y(py)));
    context.stroke();
  };
  const disc = ([px, py], radius, fill, alpha) => {
    context.globalAlpha = alpha;
    context.fillStyle = fill;
    context.beginPath();
    context.arc(x(px), y(py), radius * unit, 0, 2 * Math.PI);
    context.fill();
  };
  const w = moment.half_width, at = (entity) => moment.position[entity];
  line([[-w, -w], [w, -w], [w, w], [-w, w], [-w, -w]], { stroke: colour("--line"), dash: [4, 3] });
  Object.entries(moment.zones).forEach(([entity, radius]) => disc(at(entity), radius, "#009e73", 0.12));
  moment.links.forEach((ends) => line(ends.map(at), { stroke: colour("--soft"), dash: [2, 3] }));
  const style = (entity) => episode.styles[moment.kinds[entity]];
  const past = episode.moments.slice(Math.max(0, step - TRAIL), step + 1);
  const order = moment.kinds.map((_, entity) => entity).sort((one, other) => style(one).order - style(other).order);
  for (const entity of order) {
    if (moment.kinds[entity] === "food") continue;
    past.slice(1).forEach((each, age) => line([past[age].position[entity], each.position[entity]], { stroke: style(entity).colour, width: 1.6, alpha: (0.6 * (age + 1)) / past.length }));
  }
  moment.shots.forEach(([from, to]) => line([at(from), at(to)], { stroke: style(from).colour, width: 1.6 }));
  for (const entity of order) {
    const { colour: fill, alpha } = style(entity), size = moment.size[entity], [px, py] = at(entity);
    if (moment.kinds[entity] === "wall") {
      context.globalAlpha = alpha;
      context.fillStyle = fill;
      context.fillRect(x(px - size), y(py + size), 2 * size * unit, 2 * size * unit);
      continue;
    }
    disc([px, py], size, fill, alpha);
    if (moment.kinds[entity] === "goal") disc([px, py], size + 0.05, fill, 0.3);
  }
  for (const [entity, shares] of Object.entries(moment.bars)) shares.forEach((share, number) => {
    const [px, py] = at(entity), wide = Math.max(2.2 * moment.size[entity], half / 12), high = half / 50;
    const bottom = py + moment.size[entity] + high * (1 + 1.4 * number);
    context.globalAlpha = 1;
    context.fillStyle = colour("--line");
    context.fillRect(x(px - wide / 2), y(bottom + high), wide * unit, high * unit);
    context.fillStyle = episode.bars[number];
    context.fillRect(x(px - wide / 2), y(bottom + high), wide * share * unit, high * unit);
  });
  context.globalAlpha = 1;
  context.fillStyle = "#ffffff";
  context.font = `${11 * scale}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const [entity, text] of Object.entries(moment.labels)) context.fillText(text, x(at(entity)[0]), y(at(entity)[1]));
}

$("#play").onclick = () => play(!playing);
$("#step").oninput = () => { play(false); step = Number($("#step").value); drawStep(); };
new ResizeObserver(drawStep).observe(canvas);
setInterval(ask, 5000);
play(playing);
requestAnimationFrame(tick);
