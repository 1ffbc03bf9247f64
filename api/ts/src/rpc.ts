import { create, fromJson, toJson, type DescMessage, type DescMethod, type DescService, type JsonValue, type MessageInitShape, type MessageShape } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import { newCommandId, type CallOptions, type Transport } from "./core.js";
import { EntityService } from "./gen/hostd/entity/v1/entity_pb.js";

/** The calls of a service, except calls with a stream of requests: fetch cannot make them. */
export type Service<S extends DescService> = {
  [M in keyof S["method"] as Takes<S["method"][M]> extends never ? never : M]: Call<S["method"][M]>;
};

type Takes<M> = M extends { methodKind: "unary" | "server_streaming" } ? M : never;

type Call<M> = M extends { methodKind: infer K; input: infer I extends DescMessage; output: infer O extends DescMessage }
  ? K extends "unary"
    ? (request?: MessageInitShape<I>, options?: CallOptions) => Promise<MessageShape<O>>
    : (request?: MessageInitShape<I>, options?: Pick<CallOptions, "signal">) => AsyncGenerator<MessageShape<O>, void, undefined>
  : never;

/**
 * Returns the calls of a service over a transport. Calls without side effects are
 * retried at other nodes. So is Send: a command without an id gets one. Other calls
 * are retried only if no node can have carried them out. If a node fails, Subscribe
 * continues at another node, and other streams end with an error.
 */
export function service<S extends DescService>(desc: S, transport: Transport): Service<S> {
  const calls: Record<string, unknown> = {};
  for (const method of desc.methods) {
    const procedure = `${desc.typeName}/${method.name}`;
    const json = (request: object | undefined) => toJson(method.input, create(method.input, request as Record<string, unknown> | undefined)) as Record<string, JsonValue>;
    const told = (answer: JsonValue) => fromJson(method.output, answer, { ignoreUnknownFields: true });
    if (method.methodKind === "unary") {
      calls[method.localName] = async (request?: object, o: CallOptions = {}) => {
        const message = json(request);
        if (!isSend(method)) return told(await transport.unary(procedure, message, reads(method), o));
        message["commandId"] ||= newCommandId();
        const { firstAttemptAge: age, ...command } = message;
        return told(await transport.unary(procedure, command, { firstTried: age === undefined ? undefined : Date.now() - 1000 * parseFloat(String(age)) }, o));
      };
    } else if (method.methodKind === "server_streaming") {
      calls[method.localName] = async function* (request?: object, o: Pick<CallOptions, "signal"> = {}) {
        const message = json(request);
        // Partial cursors have only the changed positions and would have to be merged.
        if (isSubscribe(method)) delete message["partialCursors"];
        const stream = isSubscribe(method) ? transport.resumed(procedure, message, o.signal) : transport.stream(procedure, message, o.signal);
        for await (const m of stream) yield told(m);
      };
    }
  }
  return calls as Service<S>;
}

function reads(m: DescMethod): boolean {
  return m.idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS;
}

function isSend(m: DescMethod): boolean {
  return m === EntityService.method.sendCommand;
}

function isSubscribe(m: DescMethod): boolean {
  return m === EntityService.method.subscribeEvents;
}
