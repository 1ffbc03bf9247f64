/**
 * A handler's refusal: nothing is stored, and the caller gets the code and the
 * message. Anything else that a handler throws is a fault of the guest.
 */
export class Rejection extends Error {
  constructor(readonly code: string, message: string) {
    super(message);
    this.name = "Rejection";
  }
}

/**
 * Makes what a handler throws to refuse a command or query. Programs act on
 * code, people read message. Refuse before emitting: an entity that has already
 * evolved must be loaded again by the host.
 */
export function reject(code: string, message = ""): Rejection {
  return new Rejection(code, message);
}

/** Codes of rejections that the SDK makes. */
export const invalidPayload = "invalid_payload";
export const unknownName = "unknown_name";
