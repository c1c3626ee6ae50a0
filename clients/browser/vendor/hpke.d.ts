// What is used of hpke 1.1.7.
export type Key = unknown;
export const KEM_DHKEM_X25519_HKDF_SHA256: unknown;
export const KDF_HKDF_SHA256: unknown;
export const AEAD_AES_128_GCM: unknown;
export class CipherSuite {
  constructor(kem: unknown, kdf: unknown, aead: unknown);
  DeserializePublicKey(bytes: Uint8Array): Promise<Key>;
  Seal(key: Key, plain: Uint8Array, options: { info: Uint8Array }): Promise<{ encapsulatedSecret: Uint8Array; ciphertext: Uint8Array }>;
}
