// *Once*: an upload is kept before it is first sent, so that whatever happens then the same bytes go out again.

import { refuse } from "./errors.js";

/** @import {Contributions, Kept} from "./types.d.ts" */

const STORE = "contributions";

/** In this browser's IndexedDB, for all pages of one origin. @returns {Contributions} */
export function inBrowser() {
  /** @type {Promise<IDBDatabase> | undefined} */
  let opened;
  /** @type {<T>(work: (store: IDBObjectStore, answer: (value: T) => void) => void) => Promise<T>} */
  const transact = async (work) => {
    try {
      const database = await (opened ??= open());
      return await new Promise((resolve, reject) => {
        const transaction = database.transaction(STORE, "readwrite", { durability: "strict" });
        /** @type {any} */
        let found;
        transaction.oncomplete = () => resolve(found);
        transaction.onabort = () => reject(transaction.error);
        work(transaction.objectStore(STORE), (value) => (found = value));
      });
    } catch (cause) {
      opened = undefined;
      refuse("unreadable", "this browser keeps no data for this page: nothing is sent, because nobody must count twice", cause);
    }
  };
  return {
    find: (key) =>
      transact((store, answer) => {
        store.get(key).onsuccess = ({ target }) => answer(result(target));
      }),
    claim: (key, kept) =>
      transact((store, answer) => {
        store.get(key).onsuccess = ({ target }) => {
          if (!result(target)) store.add(kept, key);
          answer(result(target) ?? kept);
        };
      }),
    acknowledge: (key, { expires }) => transact((store) => void store.put({ expires, upload: null }, key)),
  };
}

/** @param {EventTarget | null} target */
const result = (target) => /** @type {IDBRequest} */ (target).result;

/** @returns {Promise<IDBDatabase>} */
function open() {
  return new Promise((resolve, reject) => {
    const asked = indexedDB.open("shufflesum", 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore(STORE);
    asked.onerror = () => reject(asked.error);
    asked.onsuccess = () => {
      dropExpired(asked.result);
      resolve(asked.result);
    };
  });
}

/** What was never acknowledged and never can be is not kept; that it was tried still is. @param {IDBDatabase} database */
function dropExpired(database) {
  database.transaction(STORE, "readwrite").objectStore(STORE).openCursor().onsuccess = ({ target }) => {
    const cursor = /** @type {IDBCursorWithValue | null} */ (result(target));
    if (cursor && cursor.value.upload && cursor.value.expires < Date.now()) cursor.update({ ...cursor.value, upload: null });
    cursor?.continue();
  };
}

/** In memory, for tests and simulated crowds: nothing is left when the page or program ends. @returns {Contributions} */
export function inMemory() {
  /** @type {Map<string, Kept>} */
  const all = new Map();
  return {
    find: async (key) => all.get(key),
    claim: async (key, kept) => (all.has(key) || all.set(key, kept), all.get(key) ?? kept),
    acknowledge: async (key, { expires }) => void all.set(key, { expires, upload: null }),
  };
}
