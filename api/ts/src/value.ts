// Conversions of JSON in messages of the API, because a field of the type
// google.protobuf.Value does not accept a plain JavaScript value.
import { fromJson, toJson, type JsonValue } from "@bufbuild/protobuf";
import { ValueSchema, type Value } from "@bufbuild/protobuf/wkt";

/** toValue converts a JSON value to the "json" case of a payload. */
export function toValue(value: JsonValue): Value {
  return fromJson(ValueSchema, value);
}

/** fromValue converts the "json" case of a payload to a JSON value. */
export function fromValue(value: Value): JsonValue {
  return toJson(ValueSchema, value);
}
