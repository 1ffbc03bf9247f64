/** A JSON Schema, as manifests have it. */
export type JsonSchema = { [member: string]: unknown };

/** The schema of a type's values, made by schema and its helpers. */
export interface Schema<T> {
  /** Only for the type checker. */
  readonly typed?: T;
  /**
   * The JSON Schema: of given values, which may not have unknown members, or of
   * values that the module writes.
   */
  render(given: boolean): JsonSchema | undefined;
  /**
   * The value as handlers receive it; it may modify its argument. It throws a
   * Misfit.
   */
  read(value: unknown, path: string): T;
  /** A member that may be missing. */
  readonly isOptional?: boolean;
  /** Reading changes the value, because JSON cannot represent its type. */
  readonly revives?: boolean;
  /** The value of a missing or null member. */
  readonly fallback?: T;
}

/** The schema of an optional member. */
export interface OptionalSchema<T> extends Schema<T> {
  readonly isOptional: true;
}

/** Why a value does not match. */
export class Misfit extends Error {
  constructor(path: string, fault: string) {
    super(`${path === "" ? "the payload" : path} ${fault}`);
    this.name = "Misfit";
  }
}

interface Words {
  string: string;
  integer: number;
  number: number;
  boolean: boolean;
  any: any;
}

type Word = keyof Words;

/**
 * The argument of schema: the name of a type, followed by ? for an optional
 * member; a list with the schema of its elements; an object with the schemas of
 * its members; or another schema.
 */
export type Literal = Word | `${Word}?` | Schema<any> | readonly [Literal] | { readonly [member: string]: Literal };

type IsOptional<L> = L extends `${Word}?` ? true : L extends { readonly isOptional: true } ? true : false;

type Flat<T> = { [K in keyof T]: T[K] };

type Members<L> = Flat<
  & { -readonly [K in keyof L as IsOptional<L[K]> extends true ? never : K]: TypeOf<L[K]> }
  & { -readonly [K in keyof L as IsOptional<L[K]> extends true ? K : never]?: TypeOf<L[K]> }
>;

/** The type of the values that a literal describes. */
export type TypeOf<L> =
  L extends Schema<infer T> ? T :
  L extends Word ? Words[L] :
  L extends `${infer W extends Word}?` ? Words[W] :
  L extends readonly [infer E] ? TypeOf<E>[] :
  L extends object ? Members<L> :
  never;

/** The type of the values that match a schema. */
export type Infer<S> = S extends Schema<infer T> ? T : never;

/**
 * Returns the schema of a literal:
 *
 *     const Add = schema({ sku: "string", quantity: integer({ min: 1 }), note: "string?" });
 *     type Add = Infer<typeof Add>; // { sku: string; quantity: number; note?: string }
 */
export function schema<const L extends Literal>(literal: L): Schema<TypeOf<L>> {
  return compile(literal) as Schema<TypeOf<L>>;
}

function compile(literal: Literal): Schema<unknown> {
  if (typeof literal === "string") return literal.endsWith("?") ? optional(word(literal.slice(0, -1))) : word(literal);
  if (Array.isArray(literal)) {
    if (literal.length !== 1) throw new TypeError("the schema of a list must have one element: the schema of the list's elements");
    return list(compile(literal[0] as Literal));
  }
  if (typeof literal !== "object" || literal === null) throw new TypeError(`${String(literal)} is not a schema`);
  if (typeof (literal as Schema<unknown>).render === "function") return literal as Schema<unknown>;
  return object(literal as { [member: string]: Literal });
}

function word(name: string): Schema<unknown> {
  switch (name) {
    case "string": return text();
    case "integer": return integer();
    case "number": return number();
    case "boolean": return simple({ type: "boolean" }, {}, (v) => typeof v === "boolean" ? "" : "must be true or false");
    case "any": return any();
  }
  throw new TypeError(`"${name}" is not a type: use string, integer, number, boolean or any`);
}

/** Options of every schema. */
export interface Described<T> {
  /** A description for people. */
  description?: string;
  /** The value of a missing or null member. */
  default?: T;
}

/** Inclusive bounds. */
export interface Bounds<T> {
  min?: T;
  max?: T;
}

function described<T>(json: JsonSchema, of: Described<T>): JsonSchema {
  return of.description === undefined ? json : { ...json, description: of.description };
}

function fallback<T>(of: Described<T>): { fallback?: T; revives?: boolean } {
  return of.default === undefined ? {} : { fallback: of.default, revives: true };
}

function simple<T>(json: JsonSchema, of: Described<T>, fault: (value: unknown) => string): Schema<T> {
  return {
    ...fallback(of),
    render: () => described(json, of),
    read: (value, path) => {
      const found = fault(value);
      if (found !== "") throw new Misfit(path, found);
      return value as T;
    },
  };
}

/** Any value. */
export function any(of: { description?: string } = {}): Schema<any> {
  return simple({}, of, () => "");
}

/** No payload: it is ignored. */
export const none: Schema<undefined> = { render: () => undefined, read: () => undefined };

const digits = /^-?(0|[1-9][0-9]{0,18})$/;

/**
 * An integer that a JavaScript number represents exactly, from -(2^53-1) to
 * 2^53-1, or within other bounds. It may be given as a string of digits.
 */
export function integer(of: Described<number> & Bounds<number> = {}): Schema<number> {
  const minimum = of.min ?? Number.MIN_SAFE_INTEGER, maximum = of.max ?? Number.MAX_SAFE_INTEGER;
  return {
    ...fallback(of),
    render: (given) => described(given ? { type: ["integer", "string"], format: "int64", minimum, maximum } : { type: "integer", minimum, maximum }, of),
    read: (value, path) => {
      const number = typeof value === "string" && digits.test(value) ? Number(value) : value;
      if (!Number.isSafeInteger(number)) throw new Misfit(path, "must be an integer within 2^53");
      return within(number as number, minimum, maximum, path);
    },
  };
}

const leastInt64 = -(2n ** 63n), mostInt64 = 2n ** 63n - 1n;

/**
 * A 64-bit integer, as a bigint. It may be given as a string of digits. Use it
 * in the schemas of events and states that contain one, so that it is a bigint
 * again after decoding, even below 2^53.
 */
export function int64(of: Described<bigint> & Bounds<bigint> = {}): Schema<bigint> {
  const minimum = of.min ?? leastInt64, maximum = of.max ?? mostInt64;
  return {
    ...fallback(of),
    revives: true,
    render: () => described({ type: ["integer", "string"], format: "int64" }, of),
    read: (value, path) => {
      let number: bigint;
      if (typeof value === "bigint") number = value;
      // The text has the digits that JavaScript writes, if it is a number here.
      else if (typeof value === "string" && digits.test(value) || Number.isInteger(value) && Math.abs(value as number) < 1e20) number = BigInt(String(value));
      else throw new Misfit(path, "must be a 64-bit integer");
      return within(number, minimum, maximum, path);
    },
  };
}

/** A number, optionally within bounds. */
export function number(of: Described<number> & Bounds<number> = {}): Schema<number> {
  const json: JsonSchema = { type: "number" };
  if (of.min !== undefined) json["minimum"] = of.min;
  if (of.max !== undefined) json["maximum"] = of.max;
  return {
    ...fallback(of),
    render: () => described(json, of),
    read: (value, path) => {
      if (typeof value === "bigint") value = Number(value); // the result must be a number
      if (typeof value !== "number" || !Number.isFinite(value)) throw new Misfit(path, "must be a number");
      return within(value, of.min ?? -Infinity, of.max ?? Infinity, path);
    },
  };
}

function within<N extends number | bigint>(value: N, minimum: N, maximum: N, path: string): N {
  if (value < minimum) throw new Misfit(path, `must be at least ${minimum}`);
  if (value > maximum) throw new Misfit(path, `must be at most ${maximum}`);
  return value;
}

/** A string, optionally with bounds on its number of characters. */
export function text(of: Described<string> & Bounds<number> = {}): Schema<string> {
  const json: JsonSchema = { type: "string" };
  if (of.min !== undefined) json["minLength"] = of.min;
  if (of.max !== undefined) json["maxLength"] = of.max;
  return simple(json, of, (v) => {
    if (typeof v !== "string") return "must be a string";
    if (of.min === undefined && of.max === undefined) return "";
    let characters = 0;
    for (const _ of v) characters++;
    if (characters < (of.min ?? 0)) return `must have at least ${of.min} characters`;
    return characters > (of.max ?? Infinity) ? `must have at most ${of.max} characters` : "";
  });
}

/** One of several strings. */
export function oneOf<const T extends string>(...texts: readonly T[]): Schema<T> {
  if (texts.length === 0) throw new TypeError("oneOf needs at least one value");
  return simple<T>({ enum: texts }, {}, (v) => texts.includes(v as T) ? "" : `must be one of ${texts.join(", ")}`);
}

/** An object with arbitrary member names, whose values have one schema. */
export function map<const L extends Literal>(literal: L): Schema<Record<string, TypeOf<L>>> {
  const values = compile(literal);
  return {
    revives: values.revives ?? false,
    render: (given) => ({ type: "object", additionalProperties: values.render(given) ?? {} }),
    read: (value, path) => {
      if (!isObject(value)) throw new Misfit(path, "must be an object");
      for (const name of Object.keys(value)) value[name] = values.read(value[name], path === "" ? name : `${path}.${name}`);
      return value as Record<string, TypeOf<L>>;
    },
  };
}

/** A value that matches the literal, or null. */
export function nullable<const L extends Literal>(literal: L): Schema<TypeOf<L> | null> {
  const inner = compile(literal) as Schema<TypeOf<L>>;
  return {
    revives: inner.revives ?? false,
    render: (given) => ({ anyOf: [inner.render(given) ?? {}, { type: "null" }] }),
    read: (value, path) => value === null ? null : inner.read(value, path),
  };
}

/** An optional member. */
export function optional<const L extends Literal>(literal: L): OptionalSchema<TypeOf<L>> {
  const inner = compile(literal) as Schema<TypeOf<L>>;
  return {
    revives: inner.revives ?? false,
    render: (given) => inner.render(given),
    read: (value, path) => inner.read(value, path),
    isOptional: true,
  };
}

function list(elements: Schema<unknown>): Schema<unknown[]> {
  return {
    revives: elements.revives ?? false,
    render: (given) => ({ type: "array", items: elements.render(given) ?? {} }),
    read: (value, path) => {
      if (!Array.isArray(value)) throw new Misfit(path, "must be a list");
      for (let i = 0; i < value.length; i++) value[i] = elements.read(value[i], `${path}[${i}]`);
      return value;
    },
  };
}

function object(literal: { [member: string]: Literal }): Schema<object> {
  const names = Object.keys(literal);
  const members = names.map((name) => compile(literal[name]!));
  return {
    revives: members.some((m) => m.revives),
    render: (given) => {
      // Written values always have the members with a default; given values
      // need not.
      const required = names.filter((_, i) => !members[i]!.isOptional && !(given && members[i]!.fallback !== undefined));
      const member = (m: Schema<unknown>): JsonSchema => {
        const json = m.render(given) ?? {};
        return given && m.fallback !== undefined ? { anyOf: [json, { type: "null" }] } : json;
      };
      const json: JsonSchema = {
        // If no member is required, no payload is allowed.
        type: given && required.length === 0 ? ["object", "null"] : "object",
        properties: Object.fromEntries(names.map((name, i) => [name, member(members[i]!)])),
      };
      if (required.length > 0) json["required"] = required;
      if (given) json["additionalProperties"] = false;
      return json;
    },
    read: (value, path) => {
      if (!isObject(value)) throw new Misfit(path, "must be an object");
      for (let i = 0; i < names.length; i++) {
        const name = names[i]!, member = members[i]!, given = value[name];
        if (given === undefined || given === null && member.fallback !== undefined) {
          if (member.fallback !== undefined) value[name] = member.fallback;
          else if (!member.isOptional) throw new Misfit(path === "" ? name : `${path}.${name}`, "is missing");
          continue;
        }
        value[name] = member.read(given, path === "" ? name : `${path}.${name}`);
      }
      return value;
    },
  };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
