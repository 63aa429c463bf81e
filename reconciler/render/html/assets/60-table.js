// The same as a table, a hundred rows at a time.
const PAGE = 100;
let page = 0, sortedBy = null, backwards = false;
const COLUMNS = {
  node: (node) => nodes.name[node],
  pool: (node) => text(nodes.pool[node]),
  place: (node) => placeOf(node, state.by),
  status: (node) => said(statusOf(node)),
  service: (node) => SERVICE[nodes.service[node]],
  concerns: (node) => concerns[node].join(", "),
  summary: (node) => text(nodes.headline[node]),
};

function sorted() {
  if (!sortedBy || sortedBy === "node") {
    const byName = [...matching].sort((a, b) => rank[a] - rank[b]);
    return backwards ? byName.reverse() : byName;
  }
  const key = COLUMNS[sortedBy];
  const keyed = matching.map((node) => [key(node), node]).sort(([a, m], [b, n]) => natural.compare(a, b) || rank[m] - rank[n]);
  return (backwards ? keyed.reverse() : keyed).map(([, node]) => node);
}

function showTable() {
  const shown = state.view === "table";
  byId("list").hidden = !shown;
  grid.hidden = shown;
  byId("legend").hidden = shown;
  if (!shown) return;
  const all = sorted(), last = Math.max(0, Math.ceil(all.length / PAGE) - 1);
  page = Math.min(page, last);
  const rows = all.slice(page * PAGE, (page + 1) * PAGE).map((node) => [
    element("button", { type: "button", class: "link", "data-open": node }, nodes.name[node]),
    COLUMNS.pool(node), COLUMNS.place(node), [sample(`s-${statusOf(node)}`), COLUMNS.status(node)], COLUMNS.service(node),
    COLUMNS.concerns(node), COLUMNS.summary(node),
  ]);
  byId("list").replaceChildren(table("Nodes", Object.keys(COLUMNS).map(heading), rows), all.length > PAGE ? pages(all.length, last) : "");
}

function heading(key) {
  const direction = sortedBy !== key ? undefined : backwards ? "descending" : "ascending";
  const sort = () => {
    backwards = sortedBy === key && !backwards;
    sortedBy = key;
    page = 0;
    showTable();
    byId("list").querySelector(`[data-sort="${key}"]`).focus();
  };
  const arrow = direction ? element("span", { "aria-hidden": "true" }, backwards ? " ↓" : " ↑") : "";
  return element("th", { scope: "col", "aria-sort": direction },
    element("button", { type: "button", "data-sort": key, on: { click: sort } }, key === "place" ? state.by : key, arrow));
}

function pages(count, last) {
  const turn = (step, label) => button(label, () => {
    page += step;
    showTable();
    byId("list").querySelector(`[data-step="${step}"]:enabled, [data-step]:enabled`)?.focus();
  }, { "data-step": step, disabled: page + step < 0 || page + step > last });
  const from = page * PAGE + 1, to = Math.min(count, (page + 1) * PAGE);
  const where = element("span", { role: "status" }, `${from.toLocaleString("en")} to ${to.toLocaleString("en")} of ${count.toLocaleString("en")}`);
  return element("div", { class: "pages" }, turn(-1, "Previous"), where, turn(1, "Next"));
}

function startTable() {
  byId("list").addEventListener("click", (event) => {
    const opener = event.target.closest("[data-open]");
    if (opener) openNode(Number(opener.dataset.open));
  });
}
