// Which nodes are meant: by text, pool, status, concern and place.
const FILTERS = ["q", "pool", "status", "concern", "place"];
let matching = everyNode;
const isMatch = new Uint8Array(total).fill(1);

function applyFilters() {
  const parts = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  matching = everyNode.filter((node) =>
    parts.every((part) => words[node].includes(part)) &&
    (!state.pool || text(nodes.pool[node]) === state.pool) &&
    (!state.status || statusOf(node) === state.status) &&
    (!state.concern || (state.concern === "none" ? !concerns[node].length : concerns[node].includes(state.concern))) &&
    (!state.place || placeOf(node, state.by) === state.place));
  isMatch.fill(0);
  for (const node of matching) isMatch[node] = 1;
}

function options(select, counts, current) {
  const known = [...counts].map(([value, count]) => element("option", { value }, `${said(value)} (${count.toLocaleString("en")})`));
  if (current && !counts.has(current)) known.push(element("option", { value: current }, `${current} (0)`));
  select.replaceChildren(element("option", { value: "" }, "all"), ...known);
  select.value = current;
}

function tally(valuesOf, order) {
  const counts = new Map();
  for (const node of everyNode) for (const value of valuesOf(node)) counts.set(value, (counts.get(value) ?? 0) + 1);
  return new Map([...counts].sort(([a], [b]) => order ? order.indexOf(a) - order.indexOf(b) : natural.compare(a, b)));
}

function fillPlaces() {
  byId("by-label").textContent = state.by[0].toUpperCase() + state.by.slice(1);
  byId("place").closest("label").hidden = state.by === "pool";
  options(byId("place"), state.by === "pool" ? new Map() : tally((node) => [placeOf(node, state.by)].filter(Boolean)), state.place);
}

function showFilters() {
  for (const key of FILTERS) {
    byId(key).value = state[key];
    byId(key).classList.toggle("on", state[key] !== "");
  }
  byId("by").value = state.by;
  for (const key of ["colour", "view"]) document.querySelector(`input[name="${key}"][value="${state[key]}"]`).checked = true;
  for (const tile of document.querySelectorAll(".tile")) tile.setAttribute("aria-pressed", String(tile.dataset.status === state.status));
  byId("clear").disabled = FILTERS.every((key) => !state[key]);
  const all = counted(total, "node");
  byId("found").textContent = matching.length === total ? all : `${matching.length.toLocaleString("en")} of ${all} match`;
}

function startFilters() {
  const concernCounts = tally((node) => concerns[node].length ? concerns[node] : ["none"], [...data.concerns, "none"]);
  options(byId("pool"), tally((node) => [text(nodes.pool[node])]), state.pool);
  options(byId("status"), tally((node) => [statusOf(node)], data.statuses), state.status);
  options(byId("concern"), concernCounts, state.concern);
  byId("by").replaceChildren(...labels.map((label) => element("option", { value: label }, label)));
  fillPlaces();
  for (const key of FILTERS) byId(key).addEventListener("input", () => change({ [key]: byId(key).value }));
  byId("by").addEventListener("input", () => change({ by: byId("by").value }));
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("reset", (event) => {
    event.preventDefault();
    change(Object.fromEntries(FILTERS.map((key) => [key, ""])));
    byId("q").focus();
  });
  for (const input of document.querySelectorAll(".switch input")) {
    input.addEventListener("change", () => change({ [input.name]: input.value }));
  }
  for (const tile of document.querySelectorAll(".tile")) {
    tile.addEventListener("click", () => change({ status: state.status === tile.dataset.status ? "" : tile.dataset.status }));
  }
  for (const link of document.querySelectorAll("[data-find]")) {
    link.addEventListener("click", () => { change({ q: link.dataset.find, view: "map" }); jump("map"); });
  }
}
