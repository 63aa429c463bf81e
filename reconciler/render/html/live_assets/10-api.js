// Asking the API. The token stays in this tab; a browser behind a proxy has none, and sends the CSRF token.
const session = { name: "", role: "viewer", csrf: "" };
const tokenOf = () => sessionStorage.getItem("reconciler-token") ?? "";

class ApiError extends Error {
  constructor(status, detail) { super(detail); this.status = status; }
}

function headersOf(more = {}) {
  return { ...(tokenOf() ? { Authorization: `Bearer ${tokenOf()}` } : {}), ...more };
}

async function failed(answer) {
  const said = await answer.json().catch(() => ({ detail: answer.statusText }));
  return new ApiError(answer.status, said.detail);
}

async function api(path) {
  const answer = await fetch(`/api/v1/${path}`, { headers: headersOf() });
  if (!answer.ok) throw await failed(answer);
  return answer.json();
}

async function write(method, path, body) {
  const more = { "Content-Type": "application/json", "X-CSRF-Token": session.csrf };
  const answer = await fetch(`/api/v1/${path}`, { method, headers: headersOf(more), body: body && JSON.stringify(body) });
  if (!answer.ok) throw await failed(answer);
  return answer.json();
}

// The stream is read by fetch, since an EventSource sends no token. It goes on after the last entry that it had.
// The server says at least every 30 s that it is there: a computer that slept, or a network that is gone, ends nothing.
const SILENT_MS = 45000;

async function follow(told) {
  let last = "", wait = 1000;
  for (;;) {
    const silent = new AbortController();
    let timer;
    const heard = () => { clearTimeout(timer); timer = setTimeout(() => silent.abort(new Error("the server is silent")), SILENT_MS); };
    try {
      heard();
      const more = { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) };
      const answer = await fetch("/api/v1/events", { headers: headersOf(more), signal: silent.signal });
      if (!answer.ok) throw await failed(answer);
      told("open");
      wait = 1000;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = "";;) {
        const { value, done } = await reader.read();
        if (done) break;
        heard();
        text += value;
        const frames = text.split("\n\n");
        text = frames.pop();
        for (const frame of frames) {
          const fields = Object.fromEntries(frame.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
          if (fields.id) last = fields.id;
          if (fields.event) told(fields.event, JSON.parse(fields.data));
        }
      }
      told("closed");
    } catch (error) {
      told("closed", error);
    } finally {
      clearTimeout(timer);
    }
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(2 * wait, 30000);
  }
}
