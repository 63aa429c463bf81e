// One node in full. Built when somebody asks for it.
const panel = byId("node");
let opener = null;
let shownNode = -1;

const section = (title, ...content) => [element("h3", {}, title), ...content];
const kindOf = (kind) => element("span", { class: `kind k-${kind}` }, said(kind));

function described(pairs) {
  const told = [];
  let before = "";
  for (const [name, ...content] of pairs) {
    if (name !== before) told.push(element("dt", {}, name));
    told.push(element("dd", {}, content));
    before = name;
  }
  return element("dl", {}, told);
}

function readFrom(node, source) {
  const at = nodes.read[node][source];
  if (at === undefined) return READ_FROM[source];
  return typeof at === "number" ? `${READ_FROM[source]}, ${ago(at)}, ${instant(at)}` : `${READ_FROM[source]}: ${at}`;
}

// --- values -----------------------------------------------------------------------------------------------------------

function valuesOf(node) {
  const open = new Map(nodes.drift[node].map(([place, since]) => [drifts[place].path, { ...drifts[place], since }]));
  const found = new Map();
  for (const place of [...data.shared[nodes.shared[node]], ...nodes.own[node]]) {
    const [path, wanted, set, commit, source] = data.values[place];
    found.set(text(path), { path: text(path), wanted: text(wanted), set: text(set), commit: text(commit), source, drift: open.get(text(path)) });
  }
  return [...found.values()];
}

function differing(node, value) {
  const d = value.drift;
  const turn = d.kind === "unknown" ? `wanted ${d.wanted}` : element("span", { class: "turn" },
    element("span", { class: "found" }, element("span", { class: "unseen" }, "found "), d.found),
    element("span", { "aria-hidden": "true" }, "→"),
    element("span", { class: "wanted" }, element("span", { class: "unseen" }, "wanted "), d.wanted));
  const read = readFrom(node, value.source);
  const about = [
    d.since === null ? "" : `since ${instant(d.since)}, ${ago(d.since)}`, d.applied && `last applied: ${d.applied}`, read && `read: ${read}`,
  ].filter(Boolean);
  const set = [value.set, value.commit].filter(Boolean).join(" · ");
  return element("div", { class: "value" },
    element("div", { class: "path" }, value.path, kindOf(d.kind)), turn, d.detail && element("div", {}, d.detail),
    element("div", { class: "soft about" }, about.map((each) => element("span", {}, each))),
    set && element("span", { class: "where" }, `set by ${set}`));
}

function wanted(node, values) {
  const rows = values.map((value) => [
    value.path, value.wanted, element("span", { class: "where" }, value.set, value.commit ? ` · ${value.commit}` : ""), readFrom(node, value.source),
  ]);
  return element("details", {}, element("summary", {}, `${counted(values.length, "value")} as specified`),
    rows.length ? table("Values as specified", ["value", "wanted and found", "set by", "read"], rows) : "");
}

// --- plan, history, evidence ------------------------------------------------------------------------------------------

function planned(node) {
  const actions = data.plans[nodes.plan[node]].map((place) => data.actions[place].map(text));
  const [start, end] = nodes.schedule[node];
  const told = nodes.waits[node].some(([word]) => text(word) === "may go"); // which tells when it is expected
  const expected = told || start === null || end === null ? [] : [["expected", `${instant(start)} to ${instant(end)}`]];
  const held = nodes.waits[node].map(([word, line]) => [text(word), text(line)]);
  const limits = nodes.limits[node].map((place) => ["limit", text(data.limits[place])]);
  const steps = actions.map(([name, hurts, sure, because, takes]) => element("li", {},
    element("b", {}, name), [hurts, takes, sure].filter(Boolean).join(", "), element("span", { class: "where" }, `because ${because}`)));
  return [described([...held, ...expected, ...limits]),
    steps.length ? element("ol", { class: "steps" }, steps) : element("p", { class: "none" }, "Nothing is planned for it.")];
}

// What was measured against the bar, drawn on a scale on which the bar stands at 70 of 100.
function scale(measured, least, most) {
  const bar = least ?? most;
  if (measured === null || bar === null || bar <= 0) return "";
  const ok = (least === null || measured >= least) && (most === null || measured <= most);
  const width = Math.min(100, Math.max(1, 70 * measured / bar));
  return drawing("svg", { class: "bar-of", "aria-hidden": "true" },
    drawing("rect", { class: "ground", width: "100%", height: "100%", rx: 2 }),
    drawing("rect", { class: ok ? "ok" : "low", width: `${width}%`, height: "100%", rx: 2 }),
    drawing("line", { class: "limit", x1: "70%", x2: "70%", y1: 0, y2: "100%" }));
}

const figure = (number) => number === null ? "" : Number(number.toPrecision(5)).toLocaleString("en", { maximumFractionDigits: 5 });

function evidence(node) {
  const found = nodes.gate[node];
  if (!found) return [element("p", { class: "none" }, "It has no certificate.")];
  const until = found.until === null ? "" : `; its time ${found.until < 0 ? "ended" : "ends"} ${instant(found.until)}`;
  const head = `Certificate ${found.adopted ? "adopted, nothing was measured," : "issued"} ${instant(found.issued)}, ${ago(found.issued)}${until}.`;
  const rows = found.tests.flatMap(([place, measured]) => {
    const [test, tool, version, verdict, reasons, metrics] = data.tests[place];
    const name = [text(test), element("span", { class: "where" }, [text(tool), text(version)].filter(Boolean).join(" "))];
    const judged = [element("span", { class: `verdict-${text(verdict)}` }, text(verdict)), text(reasons) ? element("span", { class: "where" }, text(reasons)) : ""];
    if (!metrics.length) return [[name, judged, "", "", ""]];
    return metrics.map(([metric, least, most], at) => [
      at ? "" : name, at ? "" : judged, text(metric),
      [measured[at] === null ? "not measured" : figure(measured[at]), scale(measured[at], least, most)],
      [least === null ? "" : `at least ${figure(least)}`, most === null ? "" : `at most ${figure(most)}`].filter(Boolean).join(", "),
    ]);
  });
  return [element("p", {}, head), rows.length ? table("Gate evidence", ["test", "verdict", "metric", "measured", "bar"], rows) : ""];
}

function historyOf(node) {
  const rows = nodes.history[node].map(([at, place]) => [instant(at), ...data.events[place].map(text)]).reverse();
  const more = element("p", { class: "soft" }, "All of it: ", element("code", {}, `reconciler history ${nodes.name[node]}`));
  return [rows.length ? table("History", ["when", "what", "how it went", "detail"], rows) : element("p", { class: "none" }, "The ledger has nothing of it for this page."), more];
}

// --- the panel --------------------------------------------------------------------------------------------------------

function content(node) {
  const values = valuesOf(node);
  const differ = values.filter((value) => value.drift);
  const other = nodes.drift[node].map(([place, since]) => ({ ...drifts[place], since }))
    .filter((d) => !values.some((value) => value.path === d.path))
    .map((d) => ({ path: d.path, wanted: d.wanted, set: "", commit: "", source: 5, drift: d }));
  const where = labels.map((label) => placeOf(node, label) && `${label} ${placeOf(node, label)}`).filter(Boolean).join(" · ");
  const unread = nodes.unread[node].map((place) => element("p", { class: "alert" }, `not read: ${text(place)}`));
  const ordered = [...differ, ...other];
  return [
    element("p", { class: "says" }, sample(`s-${statusOf(node)}`), element("strong", {}, said(statusOf(node))), `: ${text(nodes.headline[node])}`),
    element("p", { class: "soft" }, where, text(nodes.persona[node]) ? ` · persona ${text(nodes.persona[node])}` : ""), ...unread,
    ...section("Drift", ordered.length ? ordered.map((value) => differing(node, value)) : element("p", { class: "none" }, "Nothing differs from the spec.")),
    ...section("Plan", planned(node)),
    ...section("Gate evidence", evidence(node)),
    ...section("Desired and observed", wanted(node, values.filter((value) => !value.drift))),
    ...section("History", historyOf(node)),
  ].flat(2);
}

function showNode() {
  const node = state.node ? nodes.name.indexOf(state.node) : -1;
  if (node === shownNode && panel.open === node >= 0) return;
  shownNode = node;
  if (node < 0) { if (panel.open) panel.close(); return; }
  byId("node-title").textContent = nodes.name[node];
  byId("node-body").replaceChildren(...content(node));
  const all = order(), at = all.indexOf(node);
  byId("previous").disabled = at < 1;
  byId("next").disabled = at < 0 || at === all.length - 1;
  panel.scrollTop = 0;
  if (!panel.open) matchMedia("(max-width: 760px)").matches ? panel.showModal() : panel.show();
  byId("node-title").focus();
}

function openNode(node) {
  if (!panel.open) opener = document.activeElement;
  change({ node: nodes.name[node] });
}

function closeNode() {
  const node = shownNode;
  change({ node: "" });
  if (node >= 0 && cells[node] && grid.contains(opener)) moveTo(node);
  else (opener?.isConnected ? opener : grid.querySelector('[tabindex="0"]'))?.focus();
  opener = null;
}

function startNode() {
  const step = (by) => { const all = order(); openNode(all[all.indexOf(shownNode) + by]); };
  byId("close").addEventListener("click", closeNode);
  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  panel.addEventListener("cancel", (event) => { event.preventDefault(); closeNode(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && panel.open && !event.defaultPrevented) { event.preventDefault(); closeNode(); }
  });
  for (const link of document.querySelectorAll("[data-node].link")) {
    link.addEventListener("click", () => { const node = nodes.name.indexOf(link.dataset.node); if (node >= 0) openNode(node); });
  }
}
