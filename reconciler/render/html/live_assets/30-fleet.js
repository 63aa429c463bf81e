// Nodes, exceptions first, versions, and the events.
const ORDER = ["blocked", "unknown", "acting", "held", "waiting", "planned", "set_aside", "converged"];
const SHOWN = 30, KEPT = 200;
const wanted = { status: "", all: false };
const RANK = new Map(ORDER.map((status, at) => [status, at]));
const nodesByName = new Map();
let everyNode = [];

// `whole`: these are all nodes; else those that have changed, and the names of those that have gone.
function takeNodes({ whole, nodes, gone }) {
  if (!whole && !nodes.length && !gone.length) return;
  if (whole) nodesByName.clear();
  for (const node of nodes) nodesByName.set(node.name, node);
  for (const name of gone) nodesByName.delete(name);
  everyNode = [...nodesByName.values()].sort((a, b) => RANK.get(a.status) - RANK.get(b.status) || (a.in_service === b.in_service ? 0 : a.in_service === false ? -1 : 1) || (a.name < b.name ? -1 : 1));
  showNodes();
}

// The text that finds a node, made when somebody looks for one.
function textOf(node) {
  return node.text ??= `${node.name} ${node.pool} ${node.persona} ${Object.values(node.domains).join(" ")} ${node.why}`.toLowerCase();
}

function showNodes() {
  const nodes = everyNode;
  const counts = new Map();
  for (const node of nodes) counts.set(node.status, (counts.get(node.status) ?? 0) + 1);
  byId("tiles").replaceChildren(...ORDER.filter((status) => counts.has(status)).map((status) => element("li", {}, element("button", {
    type: "button", class: "tile", "aria-pressed": String(wanted.status === status), "data-status": status,
    on: { click: () => { wanted.status = wanted.status === status ? "" : status; wanted.all = false; listNodes(); } },
  }, element("span", { class: "count" }, element("span", { class: "status" }, element("i", { class: `s-${status}`, "aria-hidden": "true" })), String(counts.get(status))), element("span", { class: "label" }, status.replace("_", " "))))));
  const pools = [...new Set(nodes.map((node) => node.pool))].sort(), select = byId("pool");
  if (select.options.length !== pools.length + 1) {
    const chosen = select.value;
    select.replaceChildren(element("option", { value: "" }, "all"), ...pools.map((pool) => element("option", { value: pool }, pool)));
    select.value = chosen;
  }
  listNodes();
}

function listNodes() {
  const find = byId("find").value.trim().toLowerCase(), pool = byId("pool").value;
  const found = everyNode.filter((node) => (!wanted.status || node.status === wanted.status) && (!pool || node.pool === pool) && (!find || textOf(node).includes(find)));
  for (const tile of byId("tiles").querySelectorAll("button")) tile.setAttribute("aria-pressed", String(tile.dataset.status === wanted.status));
  byId("found").textContent = found.length === everyNode.length ? plural(found.length, "node") : `${found.length} of ${plural(everyNode.length, "node")}`;
  const shown = wanted.all ? found : found.slice(0, SHOWN);
  const made = cards("Nodes", ["node", "pool", "status", "since", "service", "why"], shown.map((node) => [
    nodeLink(node.name), node.pool, statusMark(node.status), since(node.since),
    element("span", { class: "num" }, node.in_service === null ? "not known" : node.in_service ? "in service" : node.out_since ? ["out since ", since(node.out_since)] : "out"), element("span", { class: "soft" }, node.why)]));
  byId("list").replaceChildren(made, ...(shown.length < found.length ? [button(`Show all ${found.length}`, () => { wanted.all = true; listNodes(); })] : []));
}

function showVersions(pools) {
  byId("matrix").replaceChildren(...pools.map((pool) => {
    const parts = new Map();
    for (const line of pool.versions) parts.set(line.what, [...(parts.get(line.what) ?? []), line]);
    const same = [...parts.values()].every((lines) => lines.every((line) => line.wanted));
    return element("details", { class: "part", open: !same },
      element("summary", {}, element("h3", {}, `${pool.name}: ${plural(pool.nodes, "node")}, ${same ? "all as specified" : "versions differ"}`)),
      table(`Versions of ${pool.name}`, ["part", "as specified", "other versions"], [...parts].map(([what, lines]) => [
        what, lines.filter((line) => line.wanted).map((line) => element("span", { class: "chip" }, `${line.version} × ${line.nodes}`)),
        lines.filter((line) => !line.wanted).flatMap((line) => [element("span", { class: "chip" }, element("span", { class: "mark bad", "aria-hidden": "true" }), `${line.version} × ${line.nodes}`), " "])])));
  }));
}

function entryLine(entry) {
  const said = [entry.event, entry.action].filter(Boolean).join(" ");
  return element("li", { class: entry.problem ? "problem" : undefined },
    element("span", { class: "num soft", title: dayOf(entry.at) }, clockOf(entry.at)),
    entry.node && !entry.node.includes("/") ? nodeLink(entry.node) : element("span", {}, entry.node || "run"),
    element("span", {}, entry.detail ? `${said}: ${entry.detail}` : said));
}

function showEvents(entries) {
  byId("feed").replaceChildren(...[...entries].reverse().map(entryLine));
}

function addEvents(entries) {
  const feed = byId("feed");
  feed.prepend(...[...entries].reverse().map(entryLine));
  while (feed.children.length > KEPT) feed.lastChild.remove();
}
