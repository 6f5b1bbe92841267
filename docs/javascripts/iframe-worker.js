// A page that is opened from a folder may not start a worker. There the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #waiting = []; // messages for a script that has not been loaded yet

    constructor(url) {
      super();
      this.#frame.hidden = true;
      this.#frame.onload = () => this.#run(url);
      document.body.append(this.#frame);
    }

    #run(url) {
      const scope = this.#frame.contentWindow;
      scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = scope.document.createElement("script");
      script.src = url;
      script.onload = () => {
        const early = this.#waiting;
        this.#waiting = null;
        early.forEach((data) => this.postMessage(data));
      };
      scope.document.head.append(script);
    }

    postMessage(data) {
      if (this.#waiting) {
        this.#waiting.push(data);
        return;
      }
      const scope = this.#frame.contentWindow;
      scope.dispatchEvent(new scope.MessageEvent("message", { data: scope.structuredClone(data) }));
    }
  };
}
