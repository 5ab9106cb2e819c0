// Search also works on a site that is opened from a disk: browsers load no worker there, but a script in a frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.inside = this.frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((resolve, reject) => {
        const script = this.inside.document.createElement("script");
        script.src = new URL(address, location.href).href;
        script.onload = resolve;
        script.onerror = () => reject(new Error("the search cannot be loaded"));
        this.inside.document.body.append(script);
      });
    }
    postMessage(data) {
      this.ready.then(() => {
        const { dispatchEvent, MessageEvent: Message } = this.inside;
        dispatchEvent.call(this.inside, new Message("message", { data }));
      });
    }
    terminate() {
      this.frame.remove();
    }
  };
}
