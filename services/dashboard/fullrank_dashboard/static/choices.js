// What the user has chosen, remembered by the browser.
const KEY = "choices";

/** Choices by name: theme, axis, measure, window, pinned. */
export const choices = read();
let changed = () => {};

/** Call `work` after every change. */
export const onChange = (work) => (changed = work);

/** Remember choices. */
export function keep(news) {
  Object.assign(choices, news);
  localStorage.setItem(KEY, JSON.stringify(choices));
  changed();
}

function read() {
  try {
    return { ...JSON.parse(localStorage.getItem(KEY)) };
  } catch {
    return {}; // another page of this address has written something else
  }
}
