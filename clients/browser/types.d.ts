/** A task file, as docs/wire.md has it. */
export interface TaskFile {
  format: string;
  wire_version: number;
  name: string;
  shuffler: string;
  analyzer_key: string;
  smallest_batch: number;
  rounds: number;
  expires: string;
  id: string;
  plan: PlanFile;
}

export interface Plan {
  domain: Domain;
  mechanism: Mechanism;
}

export interface PlanFile extends Plan {
  format: string;
  guarantee: { epsilon: number | null; delta: number; users: number; honest_fraction: number; rounds: number; accountant: string };
  id: string;
  dimension: number;
  cells: number;
  reports: number;
}

/** A number D for 0 to D - 1, or a list. */
export type Labels = number | (string | number | boolean)[];

/** The fields that its kind has, of `dense`, `symmetric` and `span`. */
export interface Structure {
  kind: string;
  shape: number[];
  size: number;
  vectors: number[][];
}

export interface Arrays {
  structure: Structure;
  bounds: [number, number] | [number[], number[]];
  columns?: string[];
}

/** The fields that its kind has, of `arrays`, `categories`, `multi-choice`, `group-by`, `open-vocabulary` and `l2-ball`. */
export interface Domain extends Arrays {
  kind: string;
  labels: Labels;
  bins?: number[];
  other?: boolean;
  max_choices: number;
  values?: Arrays;
  width: number;
  depth: number;
  key: string;
  shape?: number[];
  layers: { name?: string; shape: number[] }[];
  clipping_norm: number;
  center: number[] | null;
  seed: string;
}

/** The fields that its kind has, of `randomized-response`, `noisy-counts`, `noisy-slots`, `noisy-table` and `one-bit`. */
export interface Mechanism {
  kind: string;
  noise_by?: string;
  radices: number[];
  coordinates: number;
  levels: number;
  noise_probability: number;
  sampling: string;
  digits: number;
  trials: number[];
  probabilities: number[];
  cap: number | null;
  slots: number;
  chance: number;
  bits: number;
  amplitude: number;
  tau: number;
}

/** An upload that was made and is to be sent; null once it was acknowledged, or its task has expired. */
export interface Kept {
  /** Milliseconds since 1970. */
  expires: number;
  upload: Uint8Array<ArrayBuffer> | null;
}

/** Where contributions are kept. Each call resolves once what it did is durable. */
export interface Contributions {
  find(key: string): Promise<Kept | undefined>;
  /** Keep it, unless there is one under this key already; resolves to the one that stands. */
  claim(key: string, kept: Kept): Promise<Kept>;
  /** Remember that it was taken, and drop its bytes. */
  acknowledge(key: string, kept: Kept): Promise<void>;
}

export interface Options {
  /** The id that the task must have. */
  id?: string;
  /** Where contributions are kept: IndexedDB in browsers, a folder in Node, unless given. */
  contributions?: Contributions;
  /** Seconds to try before giving up; 60 unless given. */
  timeout?: number;
  /** Send to another machine without TLS. */
  allowPlainHttp?: boolean;
}

/** Who contributes to which round. */
export interface Who {
  /** Tells apart users who share a browser; "me" unless given. Never leaves this machine. */
  user?: string;
  /** The open round unless given. */
  round?: number;
  /** An upload token, where the task's shuffler asks for one. */
  token?: string;
}

export interface Receipt {
  round: number;
  /** Taken now, or had arrived before, when only the answer was lost. */
  contribution: "accepted" | "repeated";
}
