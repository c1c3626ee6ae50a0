// Contributions in files, for Node: one for each, whole or not there, for their owner only.

import { createHash, randomUUID } from "node:crypto";
import { link, mkdir, open, readFile, readdir, rename, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";

import { refuse } from "./errors.js";

/** @import {Contributions, Kept} from "./types.d.ts" */

/** @type {(error: unknown, code: string) => boolean} */
const is = (error, code) => /** @type {NodeJS.ErrnoException} */ (error).code === code;

/**
 * In a folder; unless given, in $XDG_DATA_HOME or ~/.local/share, and there in shufflesum/contributions. A file has the
 * moment its task expires and then the upload, which goes once it was acknowledged or its task has expired.
 * @param {string} [folder] @returns {Contributions}
 */
export function inFolder(folder) {
  const data = process.env.XDG_DATA_HOME || join(homedir(), ".local", "share");
  const place = folder ?? join(data, "shufflesum", "contributions");
  const nameOf = (/** @type {string} */ key) => createHash("sha256").update(key).digest("hex");
  /** @type {Promise<void> | undefined} */
  let swept;

  /** @type {(name: string) => Promise<Kept | undefined>} */
  const read = async (name) => {
    try {
      const bytes = await readFile(join(place, name));
      return { expires: bytes.readDoubleBE(), upload: bytes.length > 8 ? Uint8Array.from(bytes.subarray(8)) : null };
    } catch (error) {
      if (is(error, "ENOENT")) return undefined;
      throw error;
    }
  };

  /** Resolves to whether it was put there. @type {(name: string, kept: Kept, put: typeof link) => Promise<boolean>} */
  const write = async (name, { expires, upload }, put) => {
    const temporary = join(place, `.${randomUUID()}`);
    const [head, file] = [Buffer.alloc(8), await open(temporary, "wx", 0o600)];
    try {
      head.writeDoubleBE(expires);
      await file.writeFile(Buffer.concat([head, upload ?? new Uint8Array()]));
      await file.sync();
      await put(temporary, join(place, name));
      const itself = await open(place);
      await itself.sync().finally(() => itself.close());
      return true;
    } catch (error) {
      if (is(error, "EEXIST")) return false;
      throw error;
    } finally {
      await file.close();
      await rm(temporary, { force: true });
    }
  };

  const sweep = async () => {
    await mkdir(place, { recursive: true, mode: 0o700 });
    for (const name of await readdir(place)) {
      const kept = /^[0-9a-f]{64}$/.test(name) ? await read(name) : undefined;
      if (kept?.upload && kept.expires < Date.now()) await write(name, { ...kept, upload: null }, rename);
    }
  };

  /** @type {<T>(work: () => Promise<T>) => Promise<T>} */
  const explained = async (work) => {
    try {
      await (swept ??= sweep());
      return await work();
    } catch (error) {
      refuse("unreadable", `contributions cannot be kept in ${place}: nothing is sent, because nobody must count twice`, error);
    }
  };

  return {
    find: (key) => explained(() => read(nameOf(key))),
    // a link fails where another was first, unlike a rename
    claim: (key, kept) => explained(async () => ((await write(nameOf(key), kept, link)) ? kept : ((await read(nameOf(key))) ?? kept))),
    acknowledge: (key, { expires }) => explained(async () => void (await write(nameOf(key), { expires, upload: null }, rename))),
  };
}
