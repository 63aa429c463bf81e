// The map: a block for each failure domain, a cell for each node. One cell takes part in the tab order at a time.
const grid = byId("racks");
// Nodes of a map: with names; drawn where they are looked at; put in at once. Of a block: as wide as the map.
const FEW = 150, MANY = 1500, AT_ONCE = 1000, LARGE = 48;
const cells = Array(total);
let racks = [];
let current = 0;

const nodeAt = (target) => Number(target.closest?.(".cell")?.dataset.node ?? -1);

// What a reader hears of a node, and what the table and the title of a cell say.
function describe(node) {
  const told = concerns[node].length ? `concerns ${concerns[node].join(", ")}` : "nothing differs";
  return `${nodes.name[node]}, ${said(statusOf(node))}, ${SERVICE[nodes.service[node]]}, ${told}`;
}

function styleOf(node) {
  const shown = state.concern && concerns[node].includes(state.concern) ? state.concern : concerns[node][0] ?? "none";
  return state.colour === "status" ? `s-${statusOf(node)}` : `c-${shown}`;
}

const classOf = (node) => `cell ${styleOf(node)}${nodes.service[node] === 0 ? " out-of-service" : ""}` +
  `${isMatch[node] ? "" : " off"}${state.node === nodes.name[node] ? " open" : ""}`;

function buildMap() {
  const groups = new Map();
  for (const node of everyNode) {
    const place = placeOf(node, state.by); // a pool whose nodes are in no rack is a block of its own
    const name = place ? `${state.by} ${place}` : `pool ${text(nodes.pool[node])}`;
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(node);
  }
  const few = total <= FEW;
  grid.className = few ? "few" : total > MANY ? "many" : "";
  if (few) grid.style.setProperty("--longest", Math.max(...nodes.name.map((name) => name.length)));
  const wide = Math.max(1, Math.floor(grid.clientWidth / 22)); // cells beside each other in a large block
  const byName = (a, b) => rank[a] - rank[b];
  racks = [...groups].sort(([a], [b]) => natural.compare(a, b)).map(([title, members]) => rack(title, members.sort(byName), few, wide));
  grid.replaceChildren();
  putIn(racks, total > MANY ? AT_ONCE : total);
  current = racks[0]?.members[0] ?? 0;
}

// Blocks come into a large map a few at a time, so that the first can be seen, and used, at once.
function putIn(blocks, most) {
  if (blocks !== racks && blocks[0] !== racks[racks.length - blocks.length]) return; // it was grouped anew meanwhile
  let count = 0, at = 0;
  while (at < blocks.length && count < most) count += blocks[at++].members.length;
  grid.append(...blocks.slice(0, at).map((each) => each.box));
  if (at < blocks.length) requestAnimationFrame(() => setTimeout(() => putIn(blocks.slice(at), most)));
}

function makeCell(node, few) {
  const cell = element("div", { class: classOf(node), role: "gridcell", tabindex: "-1", "data-node": node, "aria-label": describe(node) });
  const status = said(statusOf(node)) + (nodes.service[node] === 0 ? ", out" : "");
  if (few) cell.append(element("span", { class: "n" }, nodes.name[node]), element("span", { class: "w" }, status));
  return cell;
}

function rack(title, members, few, wide) {
  const label = element("div", { class: "name", role: "rowheader" }, title);
  const made = members.map((node) => cells[node] ??= makeCell(node, few));
  const inside = element("div", { class: "cells", role: "presentation" }, made);
  const box = element("div", { class: members.length > LARGE ? "rack large" : "rack", role: "row", "aria-label": `${title}, ${counted(members.length, "node")}` }, label, inside);
  // How tall it is, for a browser that has not drawn it yet.
  const across = members.length > LARGE ? wide : 8;
  box.style.setProperty("--lines", Math.ceil(members.length / across));
  return { box, members };
}

function colourMap() {
  byId("map").classList.toggle("by-concern", state.colour === "concern");
  for (const node of everyNode) {
    const wanted = classOf(node), cell = cells[node];
    if (cell.className !== wanted) cell.className = wanted;
  }
  for (const { box, members } of racks) box.hidden = !members.some((node) => isMatch[node]);
  if (!isMatch[current] && matching.length) current = racks.flatMap((each) => each.members).find((node) => isMatch[node]);
  for (const cell of grid.querySelectorAll('[tabindex="0"]')) cell.tabIndex = -1;
  if (cells[current]) cells[current].tabIndex = 0;
}

function showLegend() {
  const rows = state.colour === "status"
    ? data.statuses.filter((status) => nodes.status?.includes(data.statuses.indexOf(status))).map((status) => [`s-${status}`, said(status)])
    : [...data.concerns.filter((concern) => concerns.some((found) => found.includes(concern))).map((c) => [`c-${c}`, c]), ["c-none", "nothing differs"]];
  const out = nodes.service?.includes(0) ? [["c-none out-of-service", "round: out of service"]] : [];
  byId("legend").replaceChildren(...[...rows, ...out].map(([style, label]) => element("li", {}, sample(style), label)));
}

// --- keys -----------------------------------------------------------------------------------------------------------

function moveTo(node) {
  if (node === undefined || !cells[node]) return;
  cells[current].tabIndex = -1;
  current = node;
  cells[node].tabIndex = 0;
  cells[node].focus();
}

const order = () => racks.flatMap((each) => each.members).filter((node) => isMatch[node]);

function beside(step) {
  const all = order();
  return all[Math.min(Math.max(all.indexOf(current) + step, 0), all.length - 1)];
}

// The nearest cell above or below, as the eye would go.
function across(down) {
  const from = cells[current].getBoundingClientRect(), middle = (from.left + from.right) / 2;
  const beyond = (box) => down ? box.top - from.bottom : from.top - box.bottom;
  const distance = (box) => 4 * beyond(box) + Math.max(0, box.left - middle, middle - box.right);
  const ahead = racks.filter(({ box }) => !box.hidden).map((each) => ({ members: each.members, at: each.box.getBoundingClientRect() }))
    .filter(({ at }) => down ? at.bottom > from.bottom + 1 : at.top < from.top - 1)
    .sort((a, b) => distance(a.at) - distance(b.at)).slice(0, 3);
  let best, least = Infinity;
  for (const node of ahead.flatMap((each) => each.members)) {
    const at = cells[node].getBoundingClientRect(), gap = beyond(at);
    if (!isMatch[node] || gap < -1) continue;
    const far = 4 * gap + Math.abs((at.left + at.right) / 2 - middle);
    if (far < least) { least = far; best = node; }
  }
  return best;
}

function rackEnd(last) {
  const members = racks.find((each) => each.members.includes(current)).members.filter((node) => isMatch[node]);
  return members.at(last ? -1 : 0);
}

const KEYS = {
  ArrowLeft: () => beside(-1), ArrowRight: () => beside(1), ArrowUp: () => across(false), ArrowDown: () => across(true),
  Home: (event) => event.ctrlKey ? order()[0] : rackEnd(false), End: (event) => event.ctrlKey ? order().at(-1) : rackEnd(true),
};

function startMap() {
  grid.addEventListener("click", (event) => {
    const node = nodeAt(event.target);
    if (node >= 0) { moveTo(node); openNode(node); }
  });
  grid.addEventListener("keydown", (event) => {
    if (nodeAt(event.target) < 0 || event.altKey || event.metaKey) return;
    if (event.key in KEYS) { event.preventDefault(); moveTo(KEYS[event.key](event)); }
    else if (event.key === "Enter" || event.key === " ") { event.preventDefault(); openNode(current); }
    else if (event.key.toLowerCase() === "t" && !event.ctrlKey) { change({ view: "table" }); byId("list").querySelector(".link")?.focus(); }
  });
  // A pointer is told what a reader hears, without a title on each of ten thousand cells.
  grid.addEventListener("pointerover", (event) => {
    const node = nodeAt(event.target);
    if (node >= 0 && !cells[node].title) cells[node].title = describe(node);
  });
}
