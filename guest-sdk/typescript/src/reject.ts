/**
 * The rejection of a command or query by its handler: nothing is stored, and
 * the caller gets the code and the message. Any other exception of a handler is
 * a fault of the guest.
 */
export class Rejection extends Error {
  constructor(readonly code: string, message: string) {
    super(message);
    this.name = "Rejection";
  }
}

/**
 * Returns an error that a handler throws to reject the command or query. code
 * is for programs, message for people. Reject before emitting events, because
 * the host has to reload an entity whose state has changed already.
 */
export function reject(code: string, message = ""): Rejection {
  return new Rejection(code, message);
}

/** Codes of rejections that the SDK makes. */
export const invalidPayload = "invalid_payload";
export const unknownName = "unknown_name";
