// Live updates by server-sent events, and lists that change with their controls. Pages are whole without it.
"use strict";
(() => {
  const main = document.getElementById("main");
  const address = main && main.dataset.live;
  let source = null;
  let lost = null;

  function tellLost(isLost) {
    if (isLost && !lost) {
      lost = document.createElement("p");
      lost.className = "notice warn offline";
      lost.setAttribute("role", "status");
      lost.textContent = "The console does not answer; what is shown is old.";
      document.body.append(lost);
    } else if (!isLost && lost) {
      lost.remove();
      lost = null;
    }
  }

  function show(parts) {
    for (const [id, html] of Object.entries(parts)) {
      const place = document.getElementById(id);
      // Whoever has the focus or a selection in it is not to lose it.
      const selected = window.getSelection();
      const isRead = selected && !selected.isCollapsed && place && place.contains(selected.anchorNode);
      if (place && !isRead && !place.contains(document.activeElement)) {
        place.innerHTML = html;
      }
    }
  }

  function open() {
    if (!address || source || document.hidden) return;
    source = new EventSource(address);
    source.onmessage = (event) => { tellLost(false); show(JSON.parse(event.data)); };
    source.addEventListener("ended", () => { close(); location.reload(); });
    source.onerror = () => {
      tellLost(true);
      if (source && source.readyState === EventSource.CLOSED) { close(); setTimeout(open, 5000); }
    };
  }

  function close() {
    if (source) { source.close(); source = null; }
  }

  document.addEventListener("visibilitychange", () => { document.hidden ? close() : open(); });
  window.addEventListener("pagehide", close);
  for (const form of document.querySelectorAll("form[data-auto]")) {
    for (const list of form.querySelectorAll("select")) {
      list.addEventListener("change", () => form.requestSubmit());
    }
  }
  open();
})();
