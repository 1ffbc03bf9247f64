// JSON in the messages of the API: in a field of google.protobuf.Value a plain
// value of JavaScript is not understood.
import { fromJson, toJson, type JsonValue } from "@bufbuild/protobuf";
import { ValueSchema, type Value } from "@bufbuild/protobuf/wkt";

/** toValue makes of a value of JSON what a payload has in its case "json". */
export function toValue(value: JsonValue): Value {
  return fromJson(ValueSchema, value);
}

/** fromValue is the value of JSON of a payload's case "json". */
export function fromValue(value: Value): JsonValue {
  return toJson(ValueSchema, value);
}
