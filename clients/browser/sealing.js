// Reports sealed one by one for the analyzer, and the upload that carries them: bytes as in docs/wire.md.

import { AEAD_AES_128_GCM, CipherSuite, KDF_HKDF_SHA256, KEM_DHKEM_X25519_HKDF_SHA256 } from "./vendor/hpke.js";
import { shuffled } from "./draws.js";
import { refuse } from "./errors.js";

export const WIRE_VERSION = 3;
const [SEALED_BYTES, HEADER_BYTES, KEY_BYTES] = [52, 54, 32];
const AT_ONCE = 64; // seals under way together: WebCrypto works beside this thread

const suite = new CipherSuite(KEM_DHKEM_X25519_HKDF_SHA256, KDF_HKDF_SHA256, AEAD_AES_128_GCM);

/** Seals for one task, with the analyzer's key of all rounds or with that of each. */
export class Sealer {
  /** @param {unknown[]} keys @param {Uint8Array} taskId */
  constructor(keys, taskId) {
    this.keys = keys;
    this.taskId = taskId;
  }

  /** Refuses a key under which nothing would be secret, and a browser that cannot seal. @param {Uint8Array} analyzerKeys @param {Uint8Array} taskId */
  static async of(analyzerKeys, taskId) {
    try {
      await crypto.subtle.generateKey({ name: "X25519" }, false, ["deriveBits"]);
    } catch (cause) {
      refuse("unsupported", "this page has no cryptography with X25519: it must come by https, in a newer browser", cause);
    }
    try {
      const sealer = new Sealer([], taskId);
      for (let start = 0; start < analyzerKeys.length; start += KEY_BYTES) {
        sealer.keys.push(await suite.DeserializePublicKey(analyzerKeys.slice(start, start + KEY_BYTES)));
        await sealer.seal(0, sealer.keys.length);
      }
      if (sealer.keys.length === 0) throw new Error("no key");
      return sealer;
    } catch (cause) {
      refuse("malformed-key", "the task's analyzer_key is no X25519 key, or one under which nothing is secret", cause);
    }
  }

  /** @param {number} cell @param {number} round @param {number} position */
  async seal(cell, round, position = 0) {
    // what the seal is bound to: wire version, from the randomizer (1) to the analyzer (3), task, round and position
    const [report, info] = [new Uint8Array(4), new Uint8Array(54)];
    new DataView(report.buffer).setUint32(0, cell);
    info.set(new TextEncoder().encode("shufflesum"));
    info.set([0, WIRE_VERSION, 1, 3, ...this.taskId], 10);
    new DataView(info.buffer).setUint32(46, round);
    new DataView(info.buffer).setUint32(50, position);
    const { encapsulatedSecret, ciphertext } = await suite.Seal(this.keys[this.keys.length > 1 ? round - 1 : 0], report, { info });
    return [...encapsulatedSecret, ...ciphertext];
  }

  /**
   * A fresh upload id, and all reports, sealed: every call makes other bytes. They come in random order, or, where each has its
   * position, in that of their positions. @param {number[]} cells @param {number} round @param {number[] | null} positions
   */
  async upload(cells, round, positions = null) {
    const bytes = new Uint8Array(HEADER_BYTES + SEALED_BYTES * cells.length);
    const header = new DataView(bytes.buffer);
    header.setUint16(0, WIRE_VERSION);
    bytes.set(this.taskId, 2);
    header.setUint32(34, round);
    crypto.getRandomValues(bytes.subarray(38, HEADER_BYTES));
    const ordered = positions ? cells : shuffled(cells); // in the order they were drawn, a report's place would tell what it is
    for (let start = 0; start < ordered.length; start += AT_ONCE) {
      const some = ordered.slice(start, start + AT_ONCE);
      const sealed = await Promise.all(some.map((cell, i) => this.seal(cell, round, positions?.[start + i])));
      bytes.set(sealed.flat(), HEADER_BYTES + SEALED_BYTES * start);
    }
    return bytes;
  }
}
