// A form for a JSON Schema. A member for which it has no field is entered as
// JSON.
import { useState } from "preact/hooks";
import { brief, exact } from "./json.ts";

export interface Schema {
  type?: string | string[]; properties?: Record<string, Schema>; required?: string[]; enum?: unknown[]; items?: Schema; description?: string; title?: string;
  $ref?: string; default?: unknown; minimum?: number; maximum?: number; format?: string; const?: unknown;
}

type Defs = Record<string, Schema>;

export function resolve(s: Schema | undefined, defs: Defs): Schema {
  for (let hops = 0; s?.$ref && hops < 8; hops++) s = defs[s.$ref.replace(/^#\/\$defs\//, "")];
  return s ?? {};
}

export function kindOf(s: Schema): string {
  const types = [s.type ?? []].flat().filter((t) => t !== "null");
  return types[0] ?? (s.properties ? "object" : "any");
}

/** Reports whether a form can have a field for each member of the schema. */
export function hasForm(s: Schema): boolean {
  return kindOf(s) === "object" && s.properties !== undefined;
}

export type Values = Record<string, string | boolean>;

/** Returns the JSON value of the form. */
export function valueOf(schema: Schema, values: Values, defs: Defs): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(schema.properties ?? {})) {
    const s = resolve(member, defs);
    const v = values[name];
    if (v === undefined || v === "") continue;
    if (s.enum) out[name] = s.enum.find((e) => brief(e) === v);
    else if (typeof v === "boolean") out[name] = v;
    else if (kindOf(s) === "string") out[name] = v;
    else {
      try {
        out[name] = exact(v);
      } catch {
        out[name] = v; // the node's error describes the mistake
      }
    }
  }
  return out;
}

export function Form({ schema, defs, values, change, faults }: { schema: Schema; defs: Defs; values: Values; change: (v: Values) => void; faults: Record<string, string> }) {
  return (
    <div class="form">
      {Object.entries(schema.properties ?? {}).map(([name, member]) => {
        const s = resolve(member, defs);
        const id = `field-${name}`;
        const fault = faults[name];
        return (
          <div class={`field ${fault ? "wrong" : ""}`} key={name} data-field={name}>
            <label for={id}>{name}{schema.required?.includes(name) && <span class="must" title="required"> *</span>}</label>
            <Input id={id} schema={s} value={values[name]} change={(v) => change({ ...values, [name]: v })} described={fault ? `${id}-fault` : undefined} />
            {s.description && <p class="quiet">{s.description}</p>}
            {fault && <p class="fault" id={`${id}-fault`} role="alert">{fault}</p>}
          </div>
        );
      })}
    </div>
  );
}

function Input({ id, schema: s, value, change, described }: { id: string; schema: Schema; value: string | boolean | undefined; change: (v: string | boolean) => void; described: string | undefined }) {
  const common = { id, "aria-describedby": described, "aria-invalid": described ? true : undefined };
  const text = typeof value === "string" ? value : "";
  if (s.enum) return <select {...common} value={text} onChange={(e) => change(e.currentTarget.value)}><option value="" />{s.enum.map((e) => <option key={brief(e)} value={brief(e)}>{brief(e)}</option>)}</select>;
  switch (kindOf(s)) {
    case "boolean":
      return <input {...common} type="checkbox" checked={value === true} onChange={(e) => change(e.currentTarget.checked)} />;
    case "integer":
    case "number":
      return <input {...common} inputMode="decimal" value={text} placeholder={kindOf(s)} onInput={(e) => change(e.currentTarget.value)} spellcheck={false} />;
    case "string":
      return <input {...common} value={text} placeholder={s.format ?? ""} onInput={(e) => change(e.currentTarget.value)} spellcheck={false} />;
  }
  return <Json {...common} value={text} change={change} hint={kindOf(s) === "any" ? "JSON" : `JSON, ${kindOf(s)}`} />;
}

export function Json({ id, value, change, hint, ...rest }: { id: string; value: string; change: (v: string) => void; hint: string; "aria-describedby"?: string | undefined }) {
  const [seen, set] = useState(false);
  let fault = "";
  try {
    if (value) JSON.parse(value);
  } catch (e) {
    fault = (e as Error).message;
  }
  return (
    <>
      <textarea id={id} {...rest} rows={3} value={value} placeholder={hint} spellcheck={false} onInput={(e) => change(e.currentTarget.value)} onBlur={() => set(true)} />
      {seen && fault && <p class="fault">{fault}</p>}
    </>
  );
}
