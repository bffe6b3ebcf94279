// The page: one view at a time by the address's hash, the list of contents, and light or dark colors.
(() => {
  const root = document.documentElement;
  const views = [...document.querySelectorAll(".view")];
  const links = [...document.querySelectorAll("#contents a")];
  const title = document.title;

  // --- views ---

  const show = (moveFocus) => {
    const name = decodeURIComponent(location.hash.slice(1));
    const target = name && name !== "all" ? document.getElementById(name) : null;
    const view = target?.closest(".view") ?? (name === "all" ? null : views[0]);
    root.classList.toggle("all", name === "all");
    views.forEach((each) => each.classList.toggle("current", each === view));
    links.forEach((link) => {
      if (link.hash === `#${view ? view.id : name}`) {
        link.setAttribute("aria-current", "page");
        const list = document.getElementById("contents");
        if (list.scrollHeight > list.clientHeight) list.scrollTop = link.offsetTop - list.clientHeight / 2;
      } else link.removeAttribute("aria-current");
    });
    const heading = view?.querySelector("h2");
    document.title = heading ? `${heading.textContent} – ${title}` : title;
    closeMenu();
    if (!moveFocus) {
      target?.scrollIntoView();
      return;
    }
    if (target && target !== view) {
      for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
      target.scrollIntoView();
      target.tabIndex = -1;
      target.focus({ preventScroll: true });
    } else {
      scrollTo(0, 0);
      (heading ?? document.getElementById("main")).focus({ preventScroll: true });
    }
  };

  // --- contents on a narrow screen ---

  const menu = document.getElementById("menu");
  const setMenu = (open) => {
    menu.setAttribute("aria-expanded", String(open));
    root.classList.toggle("menu-open", open);
  };
  const closeMenu = () => setMenu(false);
  menu.hidden = false;
  menu.addEventListener("click", () => setMenu(menu.getAttribute("aria-expanded") !== "true"));
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && root.classList.contains("menu-open")) {
      closeMenu();
      menu.focus();
    }
  });

  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    const main = document.getElementById("main");
    main.focus();
  });

  // --- colors ---

  const theme = document.getElementById("theme");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const nameTheme = () => {
    theme.textContent = isDark() ? "Light" : "Dark";
    theme.setAttribute("aria-label", `${theme.textContent} colors`);
  };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("warptile-theme", root.dataset.theme); } catch { /* it lasts until the page is closed */ }
    nameTheme();
  });
  prefersDark.addEventListener("change", nameTheme);
  nameTheme();

  // --- printing: the tables of pictures are on paper too ---

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll(root.classList.contains("all") ? ".wt-data" : ".current .wt-data")]
      .filter((fold) => !fold.open);
    opened.forEach((fold) => { fold.open = true; });
  });
  addEventListener("afterprint", () => { opened.forEach((fold) => { fold.open = false; }); });

  addEventListener("hashchange", () => show(true));
  show(Boolean(location.hash));
})();
