// Reading everything once, and again what has changed since.
let version = "", planned = "", reading = null, again = "", fresh = [];
let approvable = { nodes: [] };
const begun = new Set(); // nodes at work since the plans that wait were read: they wait no more

// What is as it was when it was last shown is not shown anew.
const lastShown = new Map();
function whenNew(show, ...found) {
  const text = JSON.stringify(found);
  if (lastShown.get(show) === text) return;
  lastShown.delete(show); // what could not be shown is tried again
  show(...found);
  lastShown.set(show, text);
}

// Where the answers of a pass go. They follow the nodes, for which the server is asked first.
async function readFleet() {
  await Promise.all([
    Promise.all([api("fleet"), api("incidents"), api("holds")]).then((found) => showTrouble(...found)),
    api("rollouts").then(async (found) => whenNew(showRollouts, found, found.length ? await api("rollouts/past") : [])),
    api("approvals").then((found) => { approvable = found; begun.clear(); showApprovals(found); }),
  ]);
  whenNew(showVersions, await api("pools"));
}

function leaveOut(names) {
  const known = begun.size;
  for (const name of names) begun.add(name);
  if (begun.size > known) showApprovals({ ...approvable, nodes: approvable.nodes.filter((one) => !begun.has(one.node)) });
}

// One reading at a time; what changes meanwhile is read after it. `whole`: the fleet as well, also without a new pass.
async function refresh(whole = true) {
  if (reading) { again = again === "whole" || whole ? "whole" : "run"; return reading; }
  reading = (async () => {
    const found = await api(`changes?since=${version}`);
    const passed = found.planned !== planned;
    ({ version, planned } = found);
    showRun(found.run);
    if (!planned) return;
    takeNodes(found);
    leaveOut(found.run.at_work.map((one) => one.node));
    if (whole || passed) {
      await new Promise((done) => setTimeout(done)); // after the frame that shows what was told
      await readFleet();
    }
  })().catch(trouble).finally(() => { reading = null; });
  await reading;
  if (again && !reading) { const next = again === "whole"; again = ""; await refresh(next); }
}

function trouble(error) {
  if (error.status === 401) return signIn(error.message);
  byId("alerts").replaceChildren(alertOf(error.message));
}

async function readSession() {
  try {
    Object.assign(session, await api("session"));
  } catch (error) {
    Object.assign(session, { name: "", role: "viewer", csrf: "" });
    if (error.status === 401) return signIn(error.message);
  }
  byId("who").textContent = session.name ? `${session.name} (${session.role})` : "Sign in";
  byId("stop").hidden = !may("operator");
  if (may("operator")) await refresh(true);
}

function signIn(why = "") {
  byId("sign-in-why").textContent = why;
  byId("token").value = "";
  if (!byId("sign-in").open) byId("sign-in").showModal();
}

function told(event, data) {
  const mark = byId("stream");
  if (event === "open" || event === "closed") {
    mark.textContent = event === "open" ? "live" : "reconnecting";
    mark.className = event === "open" ? "chip live" : "chip off";
    if (event === "open") refresh(true);
  } else if (event === "changed") {
    refresh(false);
  } else if (event === "entry") {
    fresh.push(data);
    if (fresh.length === 1) requestAnimationFrame(() => { addEvents(fresh); fresh = []; });
    if (["approve", "hold", "release"].includes(data.event)) refresh(true);
  }
}

byId("find").addEventListener("input", () => { wanted.all = false; listNodes(); });
byId("pool").addEventListener("change", () => { wanted.all = false; listNodes(); });
byId("filter").addEventListener("submit", (event) => event.preventDefault());
byId("close").addEventListener("click", () => byId("node").close());
byId("node").addEventListener("close", () => { opened = ""; history.replaceState(null, "", location.pathname); });
byId("ask-no").addEventListener("click", () => byId("ask").close());
byId("who").addEventListener("click", () => signIn());
byId("sign-out").addEventListener("click", () => { sessionStorage.removeItem("reconciler-token"); location.reload(); });
byId("sign-in-form").addEventListener("submit", () => { sessionStorage.setItem("reconciler-token", byId("token").value.trim()); location.reload(); });
byId("stop").addEventListener("click", () => ask("Stop the whole fleet", "Stop", true, (reason) => write("POST", "stop", { reason })));
byId("resume").addEventListener("click", () => ask("Lift the stop, and the storm brake", "Lift it", false, () => write("DELETE", "stop")));
setInterval(() => { for (const one of document.querySelectorAll("[data-since]")) one.textContent = ago(one.dataset.since); }, 1000);

(async () => {
  await refresh(true);
  await readSession();
  if (!byId("sign-in").open) {
    api("events?limit=100").then(showEvents).catch(trouble);
    follow(told);
  }
  const asked = location.hash.startsWith("#node=") ? decodeURIComponent(location.hash.slice(6)) : "";
  if (asked) openNode(asked);
})();
