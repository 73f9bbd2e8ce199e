// The assignment matrix C as a heat map: rows with learners and loads, columns of units.
import { $, colour, number } from "./dom.js";

const LEFT = 58, RIGHT = 44, TOP = 20, MOST = 360;

/** Draw C; rows whose learner is not attached are crossed out. */
export function drawCode(code, learners) {
  $("#code canvas").hidden = !code;
  if (!code) return $("#code .lead").replaceChildren("The assignment matrix is known while the controller runs.");
  const attached = new Set(learners.map((each) => each.learner));
  const vacant = code.holders.map((holder) => !attached.has(holder));
  const loads = code.matrix.map((row) => row.filter((entry) => entry !== 0).length);
  const live = new Set(code.holders.filter((holder) => attached.has(holder))).size;
  const gone = vacant.filter(Boolean).length;
  $("#code .lead").replaceChildren(
    `${code.name} at ${live} learners${gone ? `, ${gone} of ${vacant.length} rows vacant` : ""}: any ${code.tolerance} may be lost (${code.certificate}).`,
  );
  $("#code .note").textContent = code.plan ? `Planner: ${code.plan.code}. ${code.plan.reason}` : "";
  const canvas = $("#code canvas");
  canvas.setAttribute("aria-label", describe(code, loads));
  draw(canvas, code, loads, vacant);
}

function describe(code, loads) {
  const rows = code.matrix.length, units = code.matrix[0].length;
  return `Assignment matrix of ${rows} rows and ${units} units; loads from ${Math.min(...loads)} to ${Math.max(...loads)}`;
}

function draw(canvas, code, loads, vacant) {
  const rows = code.matrix.length, units = code.matrix[0].length;
  const width = canvas.clientWidth, height = Math.min(34, (MOST - TOP) / rows);
  const cell = (width - LEFT - RIGHT) / units, gap = Math.min(cell, height) > 8 ? 2 : 0;
  const scale = devicePixelRatio;
  canvas.width = width * scale;
  canvas.height = (TOP + rows * height) * scale;
  canvas.style.height = `${TOP + rows * height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  const ink = { accent: colour("--accent"), soft: colour("--soft"), line: colour("--line"), warn: colour("--warn") };
  const largest = Math.max(...code.matrix.flat().map(Math.abs)) || 1;

  context.fillStyle = ink.soft;
  context.textAlign = "right";
  context.fillText("load", width, TOP / 2);
  context.textAlign = "center";
  const every = Math.ceil(24 / cell);
  for (let unit = 0; unit < units; unit += every) context.fillText(unit, LEFT + (unit + 0.5) * cell, TOP / 2);

  const label = height >= 12 ? 1 : Math.ceil(12 / height);
  code.matrix.forEach((row, number) => {
    const y = TOP + number * height;
    row.forEach((entry, unit) => {
      context.globalAlpha = (entry === 0 ? 0.5 : 0.2 + (0.8 * Math.abs(entry)) / largest) * (vacant[number] ? 0.3 : 1);
      context.fillStyle = entry === 0 ? ink.line : ink.accent;
      context.beginPath();
      context.roundRect(LEFT + unit * cell, y, cell - gap, height - gap, gap ? 4 : 0);
      context.fill();
    });
    context.globalAlpha = 1;
    if (number % label) return;
    const holder = code.holders[number];
    context.fillStyle = vacant[number] ? ink.warn : ink.soft;
    context.textAlign = "left";
    context.fillText(vacant[number] ? "vacant" : `L${holder}`, 0, y + height / 2);
    context.textAlign = "right";
    context.fillText(loads[number], width, y + height / 2);
  });
  if (cell > 52 && height >= 24) entries(context, code.matrix, { cell, height, largest });
}

function entries(context, matrix, { cell, height, largest }) {
  context.textAlign = "center";
  matrix.forEach((row, line) => row.forEach((entry, unit) => {
    if (entry === 0) return;
    context.fillStyle = colour(Math.abs(entry) > 0.5 * largest ? "--panel" : "--text");
    context.fillText(number(Number(entry.toPrecision(3))), LEFT + (unit + 0.5) * cell - 1, TOP + (line + 0.5) * height - 1);
  }));
}
