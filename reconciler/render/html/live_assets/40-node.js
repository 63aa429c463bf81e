// One node: how it is, what differs, what is planned, what happened, and what a person may do.
let opened = "";
const part = (title, ...inside) => inside.length ? element("section", {}, element("h3", {}, title), ...inside) : "";

async function openNode(name) {
  opened = name;
  location.hash = `node=${encodeURIComponent(name)}`;
  byId("node-title").textContent = name;
  byId("node-body").replaceChildren(element("p", { class: "none" }, "Reading…"));
  if (!byId("node").open) byId("node").showModal();
  await readNode();
}

async function readNode() {
  const name = opened;
  try {
    const found = await api(`nodes/${encodeURIComponent(name)}`);
    if (name === opened) byId("node-body").replaceChildren(...detail(found).filter(Boolean));
  } catch (error) {
    if (name === opened) byId("node-body").replaceChildren(alertOf(error.message));
  }
}

function detail(found) {
  const { line, at_work: work } = found;
  return [
    element("p", { class: "lead" }, statusMark(line.status), ` in pool ${line.pool}. `, line.why),
    work ? part("Now", element("p", {}, `${work.action}: ${work.step || "begun"}, begun `, since(work.since)), work.percent === null ? "" : element("progress", { max: 100, value: work.percent, "aria-label": `${work.percent} %` })) : "",
    powers(line.name, found.holds),
    ...found.incomplete.map((text) => alertOf(text, false)),
    part("Desired and observed", found.difference ? difference(found.difference) : element("p", { class: "none" }, "Nothing that was read differs.")),
    found.actions.length ? part("Planned", element("ol", { class: "lines" }, found.actions.map((action) => element("li", {}, action.target ? `${action.name}:${action.target}` : action.name, element("span", { class: "soft" }, ` ${action.because.slice(0, 3).join(", ")}`))))) : "",
    part("History", strip(found.history), element("ol", { class: "feed" }, [...found.history].reverse().slice(0, 30).map((entry) => entryLine({ ...entry, problem: entry.event === "outcome" && entry.evidence.outcome !== "done" })))),
    part("Certificate", certificate(found.certificate)),
    element("details", {}, element("summary", {}, element("h3", {}, `All ${found.values.length} values`)),
      table("Values", ["value", "desired", "observed", "set by"], found.values.map((value) => [value.path, shown(value.desired), value.observed === null ? "not read" : shown(value.observed), setBy(value)]))),
  ];
}

const shown = (value) => typeof value === "string" ? value : JSON.stringify(value);

function setBy(value) {
  const made = [element("span", { class: "where" }, value.place)];
  if (value.origin && value.origin.commit) made.push(outside(value.url, value.origin.commit.slice(0, 9)), ` ${value.origin.summary} `);
  if (value.pull_url) made.push(outside(value.pull_url, "pull request"));
  return made;
}

function difference(text) {
  const lines = text.split("\n").slice(2).filter((line) => line);
  return element("pre", { class: "diff", tabindex: "0", role: "group", "aria-label": "Difference of desired (-) and observed (+)" }, lines.map((line) =>
    element("span", { class: line[0] === "-" ? "minus" : line[0] === "+" ? "plus" : line[0] === "@" ? "soft" : undefined }, `${line}\n`)));
}

function certificate(found) {
  if (!found) return element("p", { class: "none" }, "It has none.");
  const rows = found.results.map((one) => [one.test ?? one.tool, element("span", { class: `verdict-${one.verdict}` }, one.verdict), Object.entries(one.metrics).map(([name, value]) => `${name} ${Number(value.toPrecision(6))}`).join(", ")]);
  return element("div", {}, element("p", { class: "note" }, `${found.adopted ? "Adopted" : "Issued"} ${dayOf(found.issued_at)}`), table("Results", ["test", "verdict", "measured"], rows));
}

// --- what a person may do ---

const may = (role) => ["viewer", "operator", "admin"].indexOf(session.role) >= ["viewer", "operator", "admin"].indexOf(role) && session.name !== "";

function powers(name, holds) {
  if (!may("operator")) return "";
  return element("p", { class: "row" }, button("Hold", () => ask(`Hold ${name}`, "Hold", true, (reason) => write("POST", "holds", { subject: name, reason }))),
    holds.some((one) => one.subject === name) ? button("Release", () => ask(`Release ${name}`, "Release", false, () => write("DELETE", `holds/${encodeURIComponent(name)}`))) : "");
}

// What was shown is what is posted: each node with the fingerprint of the plan in this table. A changed plan refuses it.
function showApprovals(found) {
  const most = 10, shown = found.nodes.slice(0, most).filter((one) => !one.approved_by);
  byId("approvals").hidden = byId("to-approvals").hidden = !found.nodes.length;
  const approve = (nodes, what) => ask(`Approve ${what}`, "Approve", true, (reason) => write("POST", "approvals", { nodes: Object.fromEntries(nodes.map((one) => [one.node, one.fingerprint])), reason }));
  const rows = limited("Plans that wait for approval", ["node", "disruption", "actions", "plan", "approval"], found.nodes, (one) => [
    nodeLink(one.node), one.disruption, [one.actions.join(", "), one.blocked && element("p", { class: "soft" }, one.blocked)],
    element("code", { title: one.fingerprint }, one.fingerprint.slice(0, 12)),
    one.approved_by ? `by ${one.approved_by}` : may("admin") ? button("Approve", () => approve([one], `the plan of ${one.node}`)) : "waits"], most);
  byId("waiting").replaceChildren(rows, ...(may("admin") && shown.length > 1 ? [element("p", { class: "row" }, button(`Approve the first ${shown.length}`, () => approve(shown, plural(shown.length, "plan"))))] : []));
}

function ask(title, label, withReason, act) {
  byId("ask-title").textContent = title;
  byId("ask-do").textContent = label;
  byId("ask-reason-label").hidden = !withReason;
  byId("ask-reason").required = withReason;
  byId("ask-reason").value = "";
  byId("ask-error").hidden = true;
  byId("ask-form").onsubmit = async (event) => {
    event.preventDefault();
    try {
      await act(byId("ask-reason").value.trim());
      byId("ask").close();
      await refresh();
      if (byId("node").open) await readNode();
    } catch (error) {
      byId("ask-error").textContent = error.message;
      byId("ask-error").hidden = false;
    }
  };
  byId("ask").showModal();
}
